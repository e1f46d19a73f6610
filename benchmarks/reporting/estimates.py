"""Means, spreads and paired differences of accuracies: pure functions of DataFrames.

Scores come in wide, from :func:`by_task`: a row an (N, run, task), a column a method, in percent.
Every std has the divisor n - 1, every interval is Student's at 95%. With one run, which has one
theta0, an interval speaks of tasks and draws and not of another theta0.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

CONFIDENCE = 0.95
CLOSE = 2.0
N = "n_labels"


class Estimates(NamedTuple):
    """Means with the std of what they are means of, and of how many; frames of one shape."""

    mean: pd.DataFrame
    std: pd.DataFrame
    n: pd.DataFrame


class Gains(NamedTuple):
    """Means of paired differences in points, their 95% intervals, and the numbers of pairs."""

    mean: pd.DataFrame
    low: pd.DataFrame
    high: pd.DataFrame
    n_pairs: pd.DataFrame


def by_task(scores: pd.DataFrame) -> pd.DataFrame:
    """Accuracies by (N, run, task) and method, the methods in the order in which they come."""
    methods = scores["method"].unique()
    wide = scores.pivot(index=[N, "run", "task"], columns="method", values="accuracy")
    return wide[methods]


def mean_by(frame: pd.DataFrame, *levels: str) -> pd.DataFrame:
    """Means of what is there by group, one by one: groupby's own sums round ties otherwise."""
    return frame.groupby(level=[*levels]).agg(lambda column: column.mean())


def accuracy_over_runs(wide: pd.DataFrame) -> Estimates:
    """Of each run the mean over the tasks, then mean and std over the runs: methods by N."""
    return _over_runs(mean_by(wide, N, "run"))


def task_std_over_runs(wide: pd.DataFrame) -> Estimates:
    """Of each run the std over the tasks, then mean and std over the runs: methods by N."""
    return _over_runs(wide.groupby([N, "run"]).std())


def _over_runs(of_run: pd.DataFrame) -> Estimates:
    grouped = of_run.groupby(N)
    return Estimates(mean_by(of_run, N).T, grouped.std().T, grouped.count().T)


def gains(differences: pd.DataFrame, *keys: str) -> Gains:
    """Mean of the differences of each column and its t interval: columns by the keys, or by N."""
    keys = keys or (N,)
    grouped = differences.groupby([*keys])
    mean, n = mean_by(differences, *keys).T, grouped.count().T
    several = n.where(n > 1)
    half = stats.t.ppf(0.5 + CONFIDENCE / 2, several - 1) * grouped.std().T / np.sqrt(several)
    return Gains(mean, mean - half, mean + half, n)


def complete(accuracies: pd.Series, other: pd.Series) -> pd.Series:
    """Own minus other at each N where the other has every task that own has; missing elsewhere."""
    lacks = (accuracies.notna() & other.isna()).groupby(N).transform("any")
    return (accuracies - other).mask(lacks)


# Beside the paper


def width_over_runs(ours: Estimates, paper: Estimates) -> np.ndarray:
    """Half of the 95% interval of a difference of means over runs, by Welch's test.

    With one run of ours, whose spread is unknown, half of the prediction interval of a fifth run of
    the paper's: Student's test, to whose variance that run adds nothing.
    """
    _, std, n = (np.asarray(part, float) for part in ours)
    _, paper_std, m = (np.asarray(part, float) for part in paper)
    paper_variance = paper_std**2 / m
    our_variance = np.where(n == 1, paper_std**2, std**2 / n)
    # Without any spread there are no degrees of freedom, nor a width.
    with np.errstate(invalid="ignore", divide="ignore"):
        welch = (our_variance + paper_variance) ** 2 / (
            our_variance**2 / (n - 1) + paper_variance**2 / (m - 1)
        )
        half = stats.t.ppf(0.5 + CONFIDENCE / 2, np.where(n == 1, m - 1, welch))
        return np.where(
            our_variance + paper_variance > 0.0,
            half * np.sqrt(our_variance + paper_variance),
            0.0 * our_variance,
        )


def width_over_batches(ours: Estimates, paper: Estimates) -> np.ndarray:
    """Two of the paper's stds over the mini-batches of one theta0, however noisy ours is."""
    return CLOSE * np.asarray(paper.std, float) + 0.0 * np.asarray(ours.mean, float)
