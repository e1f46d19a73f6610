"""Tables of the paper's appendix: degenerate softmax, dead neurons, the theorems."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from reporting.estimates import Estimates
from reporting.layout import Table, mean_and_std, named_rows, texts
from reporting.paper import beside_paper, compares_with_paper, comparison_note
from reporting.results import Results

FORM_NAMES = {"": "", "theorem": ", as stated", "sub_exponential": ", of its proof"}
OF_RATIOS = ("degenerate_softmax", "dead_neurons")


def _row_of(record: dict[str, Any]) -> str:
    """The (lambda, xi) of a record, as the paper's rows are called here."""
    weight, detachment = record["degeneracy_weight"], record["detachment_weight"]
    if weight is None:
        return "fresh weights"
    return f"lambda = {weight:g}, xi = {detachment:g}"


def _how(settings: dict[str, Any]) -> str:
    """How theta0 was learned: how long, with how many networks, and by which reading."""
    passes = settings["passes"]
    averaged = ", the kernels averaged" if settings.get("kernels") == "mean" else ""
    return (
        f"theta0 after {passes} pass{'' if passes == 1 else 'es'} over {settings['rows']:,} images "
        f"with K = {settings['n_perturbations']}{averaged}"
    )


# Degenerate softmax and dead neurons


def ratio_estimates(records: list[dict[str, Any]], rows: list[str]) -> Estimates:
    """Means and stds over mini-batches: the named records by degenerate softmax and layer (%)."""
    figures = pd.DataFrame(
        [[r["degenerate_softmax_percent"], *r["dead_neurons_percent"]] for r in records], rows
    ).rename(columns=lambda layer: f"hidden {layer}" if layer else "ratio")
    mean, std = (figures.map(lambda figure, end=end: figure[end]) for end in ("mean", "std"))
    return Estimates(mean.astype(float), std.astype(float), mean.notna().astype(int))


def _over_runs(groups: Any) -> Estimates:
    return Estimates(groups.mean(), groups.std(), groups.count())


def ratios_by_setting(results: Results) -> Estimates:
    """The same of each (lambda, xi), the rows named as the paper's; several theta0s over runs."""
    ratios = ratio_estimates(results["records"], [_row_of(record) for record in results["records"]])
    if ratios.mean.index.is_unique:
        return ratios
    return _over_runs(ratios.mean.groupby(level=0, sort=False))


def _degeneracies(results: Results) -> Table:
    """A row for each setting in the order of the records, the fresh weights first."""
    settings, ratios = results["settings"], ratios_by_setting(results)
    runs = settings.get("runs", 1)
    over = f"{settings['n_batches']} mini-batches of {settings['batch_size']}"
    over = over if runs == 1 else f"{runs} theta0, of each the mean over {over}"
    cells, more = texts(mean_and_std, ratios.mean, ratios.std), f"; {_how(settings)}"
    if compares_with_paper(results):
        cells, more = (
            beside_paper(ratios, *OF_RATIOS),
            more + comparison_note(OF_RATIOS[0], ratios, results),
        )
    title = (
        f"Degenerate softmax (% of {settings['networks_a_ratio']} perturbed networks) and fully "
        f"dead neurons of each hidden layer (%): mean ± std over {over}{more}"
    )
    heads = {name: f"dead, {name}" for name in cells} | {"ratio": "degenerate softmax"}
    return named_rows(title, cells.rename(columns=heads), "loss")


def scale_figures(results: Results) -> Estimates:
    """DS, and IOD of the hidden layer where it is largest: mean and std over runs by cell."""
    cells = pd.DataFrame(results["records"])[["squared_scale", "degeneracy_weight"]]
    of_run = ratio_estimates(results["records"], [*cells.index]).mean
    worst = of_run.drop(columns="ratio").max(axis=1)
    figures = pd.DataFrame({"DS": of_run["ratio"], "IOD": worst})
    over_runs = _over_runs(figures.groupby([cells["squared_scale"], cells["degeneracy_weight"]]))
    names = [f"s^2 = {square:g}, lambda = {weight:g}" for square, weight in over_runs[0].index]
    return Estimates(*(part.set_axis(names) for part in over_runs))


def _scale_and_weight(results: Results) -> Table:
    """A row for each cell of the grid that was run."""
    settings = results["settings"]
    title = (
        f"Degenerate softmax (DS, % of {settings['networks_a_ratio']} perturbed networks) and "
        f"fully dead neurons of the worst hidden layer (IOD, %), {settings['n_batches']} "
        f"mini-batches of {settings['batch_size']}: mean, ± std over runs, if there are several; "
        f"{_how(settings)}"
    )
    estimates = scale_figures(results)
    rows = texts(mean_and_std, estimates.mean, estimates.std)
    if compares_with_paper(results):
        rows = beside_paper(estimates, "scale_and_weight")
        title += (
            comparison_note("scale_and_weight", estimates, results) + "; the paper's of four runs"
        )
    rows.insert(0, "runs", estimates.n["DS"].astype(str))
    cells = pd.DataFrame(results["records"])
    last = cells["uniformity"].str[-1].groupby([cells["squared_scale"], cells["degeneracy_weight"]])
    rows["L_uni at the end"] = last.mean().map("{:.2g}".format).to_numpy()
    return named_rows(title, rows, "setting")


def _theorems(results: Results) -> Table:
    """A row for each case, for each form of the bound where there are two."""
    rows = []
    for record in results["records"]:
        for form, points in record.get("forms", {"": record}).items():
            case, holds = record["case"] + FORM_NAMES[form], points["holds"]
            answer = "yes" if all(holds) else f"not at {len(holds) - sum(holds):,}"
            rows.append([str(record["theorem"]), case, f"{len(holds):,}", answer])
    title = (
        "The theorems against what is found. 1: share of perturbations outside of a ball, at most "
        "the bound. 2: share of images that a network gives to a class, at least the bound. 3: "
        "mean norm of a row of a layer's Jacobian under He's weights, within four standard errors "
        "of its exact value for so many units, which tends to 1"
    )
    return Table(title, pd.DataFrame(rows, columns=["theorem", "case", "points", "holds"]))


STUDY_TABLES: dict[str, Callable[[Results], Table]] = {
    "degeneracies": _degeneracies,
    "scale_and_weight": _scale_and_weight,
    "theorems": _theorems,
}
