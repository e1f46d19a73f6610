"""A figure of ours beside the paper's: whether the two may be of one law, and what "may" means.

Two kinds of spread stand in the paper. Over its four runs: ours agrees where the difference of
the two means lies in its own 95% interval (Welch's; with one run of ours, whose spread is unknown,
the interval in which a fifth run of the paper's would lie). Over mini-batches of a single theta0:
this says nothing of another theta0, so there "close" is all that is meant, by less than two of
the paper's standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from reporting.table import mean_and_std

__all__ = ["PAPER_RUNS", "SPREADS", "Estimate", "Spread", "estimate_of", "within_runs"]

CONFIDENCE = 0.95
PAPER_RUNS = 4
CLOSE = 2.0


@dataclass(frozen=True)
class Estimate:
    """A mean with the std of what it is the mean of; the std of one thing is None."""

    mean: float
    std: float | None
    n: int

    def __str__(self) -> str:
        return mean_and_std(self.mean, self.std)


def estimate_of(values: list[float]) -> Estimate:
    """Mean and std (divisor n - 1) of numbers, one a run."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), std, len(values))


def within_runs(ours: Estimate, paper: Estimate) -> bool:
    """Whether two means over runs may be of one law, at 95%.

    With variances v and w over n and m runs the difference of the means has the variance
    v / n + w / m, and Student's t with Welch's degrees of freedom. With one run of ours w is the
    paper's v.

    Raises
    ------
    ValueError
        If the paper's std is missing: there is nothing to judge by.
    """
    if paper.std is None or paper.n < 2:
        raise ValueError(f"the paper's figure {paper} has no std over runs to judge by")
    if ours.std is None:
        error = paper.std * math.sqrt(1.0 / paper.n + 1.0 / ours.n)
        freedom = float(paper.n - 1)
    else:
        own, other = ours.std**2 / ours.n, paper.std**2 / paper.n
        error = math.sqrt(own + other)
        parts = own**2 / (ours.n - 1) + other**2 / (paper.n - 1)
        # Both may be 0: then only equal means agree, whatever the degrees of freedom.
        freedom = (own + other) ** 2 / parts if parts > 0.0 else 1.0
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    return abs(ours.mean - paper.mean) <= half


def _within_batches(ours: Estimate, paper: Estimate) -> bool:
    return abs(ours.mean - paper.mean) <= CLOSE * (paper.std or 0.0)


@dataclass(frozen=True)
class Spread:
    """What a std is over: in words what agrees and what does not, and whether two figures do."""

    agree: str
    differ: str
    same: Callable[[Estimate, Estimate], bool]


SPREADS = {
    # With one run of ours it is the t interval of a fifth run in place of Welch's.
    "runs": Spread(
        "not different from the paper's at 95 % (Welch)",
        "different from the paper's at 95 % (Welch)",
        within_runs,
    ),
    "mini-batches": Spread(
        "within two of the paper's standard deviations over mini-batches",
        "not within two of the paper's standard deviations over mini-batches",
        _within_batches,
    ),
}
