"""Tables of ``photographs.py``: few labels of photographs, from starts and from fresh weights."""

from collections.abc import Callable

import pandas as pd

from protocol.photographed import METHODS, STARTS
from reporting.estimates import N
from reporting.layout import Table, named_rows
from reporting.results import Results, unpack_draws

FIGURES = {"accuracy": 4, "seconds": 3}
"""What a cell is scored by, and to how many digits that is kept."""


def _scores(results: Results) -> pd.DataFrame:
    return unpack_draws(results["scores"], FIGURES)


def _mean_and_std(values: pd.Series) -> str:
    return f"{values.mean():.1f}" + (f" ± {values.std():.1f}" if len(values) > 1 else "")


def _accuracy(results: Results) -> Table:
    """A row a method and a column each N."""
    wide = _scores(results).groupby(["method", N])["accuracy"].agg(_mean_and_std).unstack(N)
    wide = wide.loc[[name for name in METHODS if name in wide.index]]
    wide = wide.fillna("-").sort_index(axis=1).rename(columns="N = {}".format)
    title = (
        "Accuracy (%) on the test images, N labels of each class: mean and standard deviation over "
        "draws, those of one draw without the latter"
    )
    return named_rows(title, wide, "method")


def _starts(results: Results) -> Table:
    """What a start took, and how its neighbours share classes."""
    once = pd.DataFrame(results["once"], columns=["once", "seconds", "nearest", "agreement"])
    once = once.set_index("once")
    once = once.loc[[name for name in STARTS if name in once.index]]
    cells = once.map("{:.1f}".format).set_axis(
        ["seconds", "nearest neighbours, all labels", "neighbours of the same class"], axis=1
    )
    title = (
        "What is learned without labels: seconds, accuracy (%) of 20 nearest neighbours with all "
        "training labels, and how many (%) of 10 neighbours of a training image share its class"
    )
    return named_rows(title, cells, "start")


PHOTOGRAPH_TABLES: dict[str, Callable[[Results], Table]] = {
    "photographs": _accuracy,
    "photographs_starts": _starts,
}
"""From the results of the command to a table of them, by kind."""
