"""The paper's own figures (Lee and Cho, 2023, arXiv:2302.04369), which ``paper.json`` has.

"accuracy" is its Table 1: the mean test accuracy (%) over 20 random binary tasks, then (mean, std)
over four runs; "task_std" its Table 2, the std over the tasks. "degenerate_softmax" and
"dead_neurons" (%) are its appendix's tables, over 128 mini-batches of one theta0, and
"scale_and_weight" the one by which it chooses s and lambda: degenerate softmax (DS) and dead
neurons of the worst layer (IOD), over four runs.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from reporting.results import Results
from reporting.statistics import Estimates

N_LABELS = (5, 10, 20, 40)
FINAL_LOSS = (0.4, 1.0)
"""Its (lambda, xi)."""

HIDDEN_LAYER_SIZES = [392, 392, 392]


def loss_name(weight: float, detachment: float) -> str:
    """The row of a (lambda, xi)."""
    return f"lambda = {weight:g}, xi = {detachment:g}"


def scale_name(square: float, weight: float) -> str:
    """The row of an (s^2, lambda)."""
    return f"s^2 = {square:g}, lambda = {weight:g}"


@cache
def paper_table(name: str) -> Estimates:
    """One of its tables: means, stds and what they are over, rows by columns."""
    table = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))[name]
    figures = np.array(list(table["rows"].values()))
    shape = {"index": list(table["rows"]), "columns": table["columns"]}
    return Estimates(
        pd.DataFrame(figures[..., 0], **shape),
        pd.DataFrame(figures[..., 1], **shape),
        pd.DataFrame(table["over"], **shape),
    )


def paper_difference(method: str, other: str) -> pd.Series:
    """By how many points one is above another in Table 1, by N; missing where it lacks either."""
    means = paper_table("accuracy").mean.reindex([method, other])
    return pd.Series((means.loc[method] - means.loc[other]).to_numpy(), index=list(N_LABELS))


def compares_with_paper(results: Results) -> bool:
    """Whether figures of a theta0 are of the paper's data and network, and may stand beside it."""
    # A convolutional network has no widths.
    widths = results["settings"].get("hidden_layer_sizes")
    return results["dataset"]["name"] == "mnist" and widths == HIDDEN_LAYER_SIZES


def tasks_compare_with_paper(results: Results) -> bool:
    """Whether figures of tasks may: the tasks are then binary ones of the same data and network."""
    return results["settings"].get("classes", 2) == 2 and compares_with_paper(results)


def kernels_of(results: Results) -> str:
    """The reading of L_uni that theta0 was learned by: their "sum" or their "mean"."""
    kernels: str = results["settings"].get("kernels", "sum")
    return kernels
