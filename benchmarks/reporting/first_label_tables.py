"""Tables of ``first_labels.py``: choices of the examples to label first."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from reporting.estimates import N, gains
from reporting.layout import Table, named_rows
from reporting.results import Results, unpack_draws

FIGURES = {"accuracy": 4, "found": 4}
"""What a cell is scored by, and to how many digits that is kept."""

OURS, RANDOM = "k-means", "random"


def _scores(results: Results) -> pd.DataFrame:
    return unpack_draws(results["scores"], FIGURES)


def by_seed(results: Results, name: str) -> pd.DataFrame:
    """Accuracy (%) on a set: (labels, draw) by choice."""
    scores = _scores(results)
    own = scores[scores["set"] == name]
    return own.pivot(index=[N, "draw"], columns="method", values="accuracy")


def _choices(results: Results) -> Table:
    """A row a set and budget, a column a choice."""
    scores = _scores(results).astype({N: str})
    means = scores.groupby(["set", N, "method"], sort=False)[[*FIGURES]].mean()
    cells = means.apply(lambda row: f"{row.accuracy:.1f} ({row.found:.0f})", axis=1)
    wide = cells.unstack("method", sort=False)[scores["method"].unique()].fillna("-")
    budgets = wide[(wide.drop(columns=RANDOM) != "-").any(axis=1)]
    title = "Accuracy (%), and in brackets how many classes (%) have a label: means over the seeds"
    return named_rows(title, budgets, "data set", "labels")


def labels_at_random(curve: pd.Series, accuracy: float) -> str:
    """How many labels random choice needs for an accuracy, by its means (at each budget)."""
    best = curve.cummax()
    if accuracy > best.iloc[-1]:
        return f"> {best.index[-1]}"
    return f"{np.exp(np.interp(accuracy, best, np.log(best.index))):.0f}"


def _gains(results: Results) -> Table:
    """What our choice gains over random choice, and over the best of all others."""
    scores, rows = _scores(results), []
    for name, n in scores.loc[scores["method"] == OURS, ["set", N]].drop_duplicates().to_numpy():
        of_set = by_seed(results, name)
        curve, own = of_set[RANDOM].groupby(N).mean(), of_set.loc[[n]].dropna(axis=1)
        of = gains(own.rsub(own[OURS], axis=0))
        text = {
            each: "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(part.loc[each, n] for part in of[:3]))
            for each in own
        }
        means = own.mean()
        best = means.drop([OURS, RANDOM]).idxmax() if len(means) > 2 else RANDOM
        accuracies = [f"{means[RANDOM]:.1f}", f"{means[OURS]:.1f}", text[RANDOM]]
        needed = labels_at_random(curve, means[OURS])
        rows.append([name, str(n), *accuracies, needed, f"{text[best]} ({best})"])
    head = ["data set", "labels", RANDOM, OURS, "difference", "labels that random choice needs"]
    title = (
        f"Accuracy (%) of `{OURS}` and random choice, and differences in points with 95% intervals "
        "over the seeds"
    )
    return Table(title, pd.DataFrame(rows, columns=[*head, "difference from the best of the rest"]))


FIRST_LABEL_TABLES: dict[str, Callable[[Results], Table]] = {
    "first_labels": _choices,
    "first_labels_gains": _gains,
}
"""From the results of the command to a table of them, by kind."""
