"""Tables of the paper's appendix: degenerate softmax, dead neurons, detachment, the theorems.

The paper's figures stand there only for its own data and network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from reporting.layout import Table, mean_and_std, texts
from reporting.paper import FINAL_LOSS, compares_with_paper, loss_name, paper_table, scale_name
from reporting.results import Results, ratios
from reporting.statistics import Estimates

NOT_RUN = "not yet run"
FORM_NAMES = {"theorem": "as stated", "sub_exponential": "of its proof"}
# Rows of the table of detachment; the picture has them all.
N_STEPS = 6

Setting = tuple[float, float] | None


def setting_of(record: dict[str, Any]) -> Setting:
    """The (lambda, xi) of a record; None for the fresh weights."""
    values = record["degeneracy_weight"], record["detachment_weight"]
    return None if values[0] is None else values


def _pretraining(settings: dict[str, Any]) -> str:
    """How theta0 was learned: how long, with how many networks, and by which reading."""
    passes = settings["passes"]
    averaged = ", the kernels averaged" if settings.get("kernels") == "mean" else ""
    return (
        f"theta0 after {passes} pass{'' if passes == 1 else 'es'} over {settings['rows']:,} images "
        f"with K = {settings['n_perturbations']}{averaged}"
    )


def _mini_batches(settings: dict[str, Any]) -> str:
    return f"{settings['n_batches']} mini-batches of {settings['batch_size']}"


def _ratio_texts(results: Results, records: str = "records") -> pd.DataFrame:
    """Degenerate softmax and dead neurons of each record, mean ± std over mini-batches."""
    rows = [ratios([r]).set_index("measure") for r in results[records]]
    return pd.DataFrame([pd.Series(map(mean_and_std, r["mean"], r["std"]), r.index) for r in rows])


RATIO_HEADS = {"ratio": "degenerate softmax"} | {
    f"hidden {i}": f"dead, hidden {i}" for i in range(9)
}


# By setting


def _by_setting(results: Results) -> dict[Setting, pd.Series]:
    """The cells of each setting that is shown, the fresh weights first."""
    cells = _ratio_texts(results)
    own = dict(
        zip(map(setting_of, results["records"]), (c for _, c in cells.iterrows()), strict=True)
    )
    missing = pd.Series(NOT_RUN, index=_measures(results))
    return {s: own.get(s, missing) for s in (None, *map(tuple, results["settings"]["shown"]))}


def _measures(results: Results) -> list[str]:
    return [
        "ratio",
        *(f"hidden {i + 1}" for i in range(len(results["settings"]["hidden_layer_sizes"]))),
    ]


def _head_cells(setting: Setting) -> list[str]:
    return ["fresh weights", "-"] if setting is None else [f"{value:g}" for value in setting]


def _paper_cells(name: str, setting: Setting) -> list[str]:
    """The paper's figures of a setting, if it has any."""
    table, row = paper_table(name), loss_name(*setting) if setting else ""
    if row not in table.mean.index:
        return []
    return list(map(mean_and_std, table.mean.loc[row], table.std.loc[row]))


def _degenerate_softmax(results: Results) -> Table:
    settings, paper = results["settings"], compares_with_paper(results)
    rows = [
        [*_head_cells(s), cells["ratio"], *(_paper_cells("degenerate_softmax", s) or ["-"])]
        for s, cells in _by_setting(results).items()
    ]
    frame = pd.DataFrame(rows, columns=["lambda", "xi", "ours", "the paper"])
    title = (
        f"Degenerate softmax (% of {settings['networks_a_ratio']} perturbed networks): mean ± std "
        f"over {_mini_batches(settings)}; {_pretraining(settings)}"
    )
    return Table(title, frame if paper else frame.drop(columns="the paper"))


def _dead_neurons(results: Results) -> Table:
    settings, paper = results["settings"], compares_with_paper(results)
    layers, rows = _measures(results)[1:], []
    for setting, cells in _by_setting(results).items():
        own = list(cells[layers])
        figures = _paper_cells("dead_neurons", setting) if paper else []
        if figures:
            own = [f"{o} ({figure})" for o, figure in zip(own, figures, strict=True)]
        rows.append([*_head_cells(setting), *own])
    title = (
        f"Fully dead neurons (%): mean ± std over {_mini_batches(settings)}; "
        f"{_pretraining(settings)}{' (the paper' + chr(39) + 's figure in brackets)' if paper else ''}"
    )
    return Table(title, pd.DataFrame(rows, columns=["lambda", "xi", *layers]))


def density_figures(densities: dict[str, Any]) -> tuple[float, float]:
    """Distance from uniform at an image, and std of a network's predictions over images.

    Kolmogorov and Smirnov's distance, mean of the images; the std is the mean of the networks.
    """
    at_images = [stats.kstest(v, "uniform").statistic for v in densities["over_perturbations"]]
    of_networks = np.asarray(densities["over_inputs"]).std(axis=1, ddof=1)
    return float(np.mean(at_images)), float(of_networks.mean())


def _densities(results: Results) -> Table:
    rows = [
        [*_head_cells(setting_of(r)), *(f"{x:.3f}" for x in density_figures(r["densities"]))]
        for r in results["records"]
        if "densities" in r
    ]
    title = (
        "Probability of class 0: distance from uniform over perturbations (Kolmogorov-Smirnov, "
        "mean of the images) and std over images (mean of the networks; uniform has 0.289)"
    )
    head = ["lambda", "xi", "distance at an image", "std of a network"]
    return Table(title, pd.DataFrame(rows, columns=head))


def shares_table(results: Results) -> Table:
    """What becomes of theta0 as L_uni weighs less beside the other two terms.

    Of the records with a multiple of the paper's (lambda, xi): as many times both is an L_uni of
    as small a share, since Adam does not mind the scale of a loss.
    """
    settings, names = results["settings"], []
    for record in results["records"]:
        setting = setting_of(record)
        times = setting and [own / paper for own, paper in zip(setting, FINAL_LOSS, strict=True)]
        share = times and math.isclose(*times) and ("1" if times[1] == 1.0 else f"1/{times[1]:g}")
        names.append(share or None)
    cells = _ratio_texts(results).rename(columns=RATIO_HEADS)
    cells.insert(0, "weight of L_uni", names)
    title = (
        f"Degenerate softmax (% of {settings['networks_a_ratio']} perturbed networks) and dead "
        f"neurons (%) by the weight of L_uni: mean ± std over {settings['n_batches']} "
        f"mini-batches; {_pretraining(settings)}"
    )
    return Table(title, cells.dropna())


def _diagnostics(results: Results) -> Table:
    """One row for each theta0 in the order of the records, then the paper's."""
    settings = results["settings"]
    cells = _ratio_texts(results, "theta0").rename(columns=RATIO_HEADS)
    cells.insert(0, "theta0", [record["name"] for record in results["theta0"]])
    if compares_with_paper(results):
        final = [*_paper_cells("degenerate_softmax", FINAL_LOSS)]
        final += _paper_cells("dead_neurons", FINAL_LOSS)
        cells.loc[len(cells)] = ["the paper, after five passes", *final]
    title = (
        f"Degenerate softmax (% of {settings['n_perturbations']} perturbed networks) and fully "
        f"dead neurons of each hidden layer (%): mean ± std over {_mini_batches(settings)} training "
        "images"
    )
    return Table(title, cells)


def ratios_by_setting(results: Results) -> Estimates:
    """Means and stds over mini-batches, the rows named as the paper's; no fresh weights."""
    frame = ratios(r for r in results["records"] if r["degeneracy_weight"] is not None)
    row = [
        loss_name(*s)
        for s in zip(frame["degeneracy_weight"], frame["detachment_weight"], strict=True)
    ]
    wide = frame.assign(row=row).pivot(index="row", columns="measure", values=["mean", "std"])
    return Estimates(wide["mean"], wide["std"], wide["mean"].notna().astype(int))


# By scale and weight


def scale_figures(results: Results) -> Estimates:
    """DS, and IOD of the hidden layer where it is largest: mean and std over runs by cell."""
    cell = ["squared_scale", "degeneracy_weight"]
    frame = ratios(results["records"])
    of_run = frame.pivot(index=[*cell, "run"], columns="measure", values="mean")
    worst = of_run.drop(columns="ratio").max(axis=1)
    over_runs = pd.DataFrame({"DS": of_run["ratio"], "IOD": worst}).groupby(cell)
    found = Estimates(over_runs.mean(), over_runs.std(), over_runs.count())
    names = [scale_name(*key) for key in found.mean.index]
    return Estimates(*(part.set_axis(names) for part in found))


def _scale_and_weight(results: Results) -> Table:
    """One row for each cell of the grid, those that were not run yet among them."""
    settings, table = results["settings"], paper_table("scale_and_weight")
    grid = {
        scale_name(s, w): (s, w) for s in settings["squared_scales"] for w in settings["weights"]
    }
    found = {
        "runs": pd.Series("0", index=list(grid)),
        "DS": pd.Series(NOT_RUN, index=list(grid)),
        "IOD": pd.Series(NOT_RUN, index=list(grid)),
    }
    if results["records"]:
        own = scale_figures(results)
        cells = texts(mean_and_std, own.mean, own.std).assign(runs=own.n["DS"].astype(str))
        found = {name: cells[name].reindex(list(grid)).fillna(v) for name, v in found.items()}
    columns = [*found]
    if compares_with_paper(results):
        beside = texts(mean_and_std, table.mean, table.std).reindex(list(grid)).fillna("-")
        found |= {f"{name}, the paper": beside[name] for name in ("DS", "IOD")}
        columns = ["runs", "DS", "DS, the paper", "IOD", "IOD, the paper"]
    frame = pd.DataFrame(found)[columns]
    frame.insert(0, "s^2", [f"{square:g}" for square, _ in grid.values()])
    frame.insert(1, "lambda", [f"{weight:g}" for _, weight in grid.values()])
    title = (
        f"Degenerate softmax (DS, % of {settings['networks_a_ratio']} perturbed networks) and "
        f"fully dead neurons of the worst hidden layer (IOD, %), {_mini_batches(settings)}: mean, "
        f"± std over runs where there are several; {_pretraining(settings)}"
    )
    if compares_with_paper(results):
        title += " (the paper: 5 passes, K = 256, four runs)"
    return Table(title, frame)


# Detachment and the theorems


def _detachment(results: Results) -> Table:
    """A row for some of the steps, from the first to the last."""
    settings, records = results["settings"], results["records"]
    chosen = np.unique(np.linspace(0, len(records) - 1, N_STEPS).round().astype(int))

    def figure(values: list[float]) -> str:
        mean = f"{np.mean(values):.3g}"
        return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.2g}"

    rows = [
        [f"{r['step']:,}", f"{r['at_theta0']:.3g}", *map(figure, r["nearby"])]
        for r in ([records[i] for i in chosen] if records else [])
    ]
    head = ["step", "at theta0", *(f"s^2 = {square:g}" for square in settings["squared_scales"])]
    title = f"L_iod at theta0 and near it (mean ± std over {settings['draws']} perturbations)"
    return Table(title, pd.DataFrame(rows, columns=head))


def _theorem_rows(record: dict[str, Any]) -> Iterator[tuple[str, str, list[bool]]]:
    """Case, figures, and whether the theorem holds at each point."""
    if record["theorem"] == 1:
        scale = record["root_mean_square_norm"]
        found = record["radius_of_one_percent"] / scale
        for form, points in record["forms"].items():
            bound = np.interp(np.log(100.0), -np.log(points["bounds"]), points["radii"]) / scale
            text = f"1 % lie outside of {found:.3f} rms, the bound says {bound:.3f}"
            yield f"{record['case']}, {FORM_NAMES[form]}", text, points["holds"]
        return
    if record["theorem"] == 2:
        above, shares = (sum(x > 0.0 for x in record[key]) for key in ("bounds", "shares"))
        text = f"the bound is above 0 at {above:,} points; {shares:,} have a share"
    else:
        text = (
            f"{record['mean']:.4f} ± {record['std']:.4f} in {record['n_networks']:,} networks, "
            f"exact {record['expected_mean']:.4f} ± {record['expected_std']:.4f}"
        )
    yield record["case"], text, record["holds"]


def _theorems(results: Results) -> Table:
    """One row for each case, for each form of the bound where there are two."""
    rows = []
    for record in results["records"]:
        for case, text, holds in _theorem_rows(record):
            said = "yes" if all(holds) else f"not at {len(holds) - sum(holds):,}"
            rows.append([str(record["theorem"]), case, f"{len(holds):,}", text, said])
    title = (
        "The theorems against what is found. 1: share of perturbations outside of a ball, at most "
        "the bound; radii in root mean square lengths (rms). 2: share of images that a network "
        "gives to a class, at least the bound. 3: norm of a row of a layer's Jacobian under He's "
        "weights, mean ± std, near 1 for large n"
    )
    head = ["theorem", "case", "points", "figures", "holds"]
    return Table(title, pd.DataFrame(rows, columns=head))


STUDY_TABLES: dict[str, Callable[[Results], Table]] = {
    "degenerate_softmax": _degenerate_softmax,
    "dead_neurons": _dead_neurons,
    "densities": _densities,
    "shares": shares_table,
    "diagnostics": _diagnostics,
    "scale_and_weight": _scale_and_weight,
    "detachment": _detachment,
    "theorems": _theorems,
}
"""From the results of a command to a table of them, by kind."""
