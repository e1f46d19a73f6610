"""Tables of ``signals.py``: few labels of signals, by data set."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from reporting.estimates import N, gains
from reporting.layout import Table, named_rows
from reporting.results import Results, unpack_draws

FIGURES = {"accuracy": 4, "seconds": 2}
"""What a method is scored by, and to how many digits that is kept."""
OURS = "EmbeddingClassifier + ridge"
AFTERWARDS = "label spreading + ridge"
KERNELS = "EmbeddingClassifier, kernels"
LINEAR = "MiniRocket + ridge", "MiniRocket + logistic regression"
BETTER = "the better of the two"


def of_draws(results: Results) -> pd.DataFrame:
    """Accuracy (%) by (N, set, draw), the methods in their order."""
    scores = unpack_draws(results["scores"], FIGURES)
    wide = scores.pivot(index=[N, "set", "draw"], columns="method", values="accuracy")
    return wide[[name for name in results["settings"]["methods"] if name in wide]]


def of_sets(results: Results) -> pd.DataFrame:
    """Means over the choices of labels, by (N, set)."""
    return of_draws(results).groupby([N, "set"]).mean()


def _of_n(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.T.rename(columns="N = {}".format)


def _text(mean: float, low: float, high: float) -> str:
    interval = "" if pd.isna(low) else f" [{low:+.1f}, {high:+.1f}]"
    return "-" if pd.isna(mean) else f"{mean:+.1f}{interval}"


def _means(results: Results) -> Table:
    """A row a method; what lacks a set has no mean."""
    wide = of_sets(results)
    means = wide.groupby(N).agg(lambda column: column.mean(skipna=False))
    n_sets = wide.groupby(N).size()
    cells = _of_n(means).map(lambda value: "-" if pd.isna(value) else f"{value:.1f}")
    cells.columns = [f"{name} ({n} sets)" for name, n in zip(cells, n_sets, strict=True)]
    title = "Accuracy (%) on the signals without labels, N labels of each class: means over sets"
    return named_rows(title, cells, "method")


def _gains(ours: str, results: Results) -> Table:
    """A method minus each other one on the sets that have both."""
    draws, linear = of_draws(results), of_sets(results)[[*LINEAR]]
    best = linear.groupby(N).mean().idxmax(axis=1)
    in_the_mean = pd.concat([draws.loc[[n], best[n]] for n in best.index])
    on_each = draws[LINEAR[0]].where(
        (linear[LINEAR[0]] >= linear[LINEAR[1]]).reindex(draws.index.droplevel("draw")).to_numpy(),
        draws[LINEAR[1]],
    )
    if ours not in draws:
        return Table("", pd.DataFrame())
    others = {f"{BETTER} in the mean of all sets": in_the_mean, f"{BETTER} on each set": on_each}
    others |= {name: draws[name] for name in draws if name != ours}
    of_set = pd.DataFrame({name: draws[ours] - other for name, other in others.items()})
    differences = of_set.groupby([N, "set"]).mean()
    mean, low, high, n = (_of_n(part.T) for part in gains(differences))
    cells = pd.DataFrame({
        name: [
            f"{_text(*values)}{'' if k == n[name].max() else f', {k:.0f} sets'}"
            for *values, k in zip(mean[name], low[name], high[name], n[name], strict=True)
        ]
        for name in mean
    }, index=mean.index)  # fmt: skip
    title = f"{ours} minus it, in points: mean and 95% interval over the sets that have both"
    return named_rows(title, cells, "method")


def _of_each_n(values: pd.DataFrame, form: str) -> pd.DataFrame:
    """A row a set; a cell has a figure for each N, a dash where there is none."""
    texts = values.map(lambda value: "-" if pd.isna(value) else form.format(value))
    of_set = texts.unstack(N, fill_value="-").T.groupby(level=0, sort=False)
    return of_set.agg(" / ".join).T


def _by_set(results: Results) -> Table:
    """Ours, the linear models and the difference to the better one."""
    wide, about = of_sets(results), {entry["set"]: entry for entry in results["sets"]}
    cells = _of_each_n(wide[[OURS, *LINEAR]], "{:.1f}")
    difference = wide[OURS] - wide[[*LINEAR]].max(axis=1)
    cells[f"minus {BETTER}"] = _of_each_n(difference.to_frame(), "{:+.1f}").iloc[:, 0]
    cells.index = [
        (name, *(str(about[name][part]) for part in ("of", "length", "classes")))
        for name in cells.index
    ]
    numbers = " / ".join(map(str, wide.index.unique(N)))
    title = (
        f"Accuracy (%) with N = {numbers} labels of each class: means over choices of the labels"
    )
    return named_rows(title, cells, "set", "signals", "length", "classes")


def _all_methods(results: Results) -> Table:
    """The other methods."""
    cells = _of_each_n(of_sets(results).drop(columns=[OURS, *LINEAR]), "{:.1f}")
    return named_rows("Accuracy (%) of the other methods, in the same form", cells, "set")


SIGNAL_TABLES: dict[str, Callable[[Results], Table]] = {
    "signals": _means,
    "signals_gains": partial(_gains, OURS),
    "signals_kernels_gains": partial(_gains, KERNELS),
    "signals_afterwards_gains": partial(_gains, AFTERWARDS),
    "signals_by_set": _by_set,
    "signals_others": _all_methods,
}
"""From the results of the command to a table of them, by kind."""
