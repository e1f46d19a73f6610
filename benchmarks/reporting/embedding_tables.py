"""Tables of ``embeddings.py``: methods on embedded texts, with few labels."""

from collections.abc import Callable

import pandas as pd

from protocol.embedded import METHODS
from reporting.estimates import N
from reporting.layout import Table, named_rows
from reporting.results import Results, unpack_draws

FIGURES = {"accuracy": 4, "seconds": 2}
"""What a cell is scored by, and to how many digits that is kept."""


def _scores(results: Results) -> pd.DataFrame:
    return unpack_draws(results["scores"], FIGURES)


def _in_order(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.loc[[name for name in METHODS if name in cells.index]]


def _accuracy(results: Results) -> Table:
    """A row a method; of each N the sets and then their mean."""
    means = _scores(results).groupby(["method", N, "set"])["accuracy"].mean()
    wide = _in_order(means.unstack([N, "set"]))
    names = [entry["set"] for entry in results["sets"]]
    columns: dict[str, pd.Series] = {}
    for n in wide.columns.get_level_values(N).unique().sort_values():
        of_n = wide[n][[name for name in names if name in wide[n]]]
        columns |= {f"{name}, N = {n}": of_n[name] for name in of_n}
        if len(of_n.columns) > 1:
            columns[f"mean, N = {n}"] = of_n.mean(axis=1, skipna=False)
    cells = pd.DataFrame(columns).map(lambda value: "-" if pd.isna(value) else f"{value:.1f}")
    title = "Accuracy (%) on the test texts, N labels of each class: means over draws"
    return named_rows(title, cells, "method")


def _seconds(results: Results) -> Table:
    """Medians over all N and draws, and what is made once a set."""
    seconds = _scores(results).groupby(["method", "set"])["seconds"].median().unstack("set")
    cells = _in_order(seconds).map("{:.3g}".format)
    once = pd.DataFrame(results["once"], columns=["once", "set", "seconds"])
    made = once.groupby(["once", "set"])["seconds"].median()
    for name in cells.index:
        for rows, set_name in made.index:
            if rows == METHODS[name].made:
                cells.loc[name, set_name] += f" + {made[rows, set_name]:.3g}"
    title = (
        "Median seconds of a method on one thread: of a cell (one set, N and draw), plus what is "
        "made once a set, of its rows without labels; the first label spreading has the search for "
        "neighbours, which the others share"
    )
    return named_rows(title, cells, "method")


EMBEDDING_TABLES: dict[str, Callable[[Results], Table]] = {
    "embeddings": _accuracy,
    "embeddings_seconds": _seconds,
}
"""From the results of the command to a table of them, by kind."""
