"""Ranks of methods over sets, and which of them do not differ: Friedman's and Nemenyi's way.

As in Demsar, Statistical comparisons of classifiers over multiple data sets, JMLR 7, 2006.
"""

from __future__ import annotations

import math

import pandas as pd
from scipy import stats

from reporting.statistics import CONFIDENCE

# Means that are equal may differ in their last bit, by the order in which they were added up.
DECIMALS = 9


def ranks_of(accuracies: pd.DataFrame) -> pd.DataFrame:
    """The rank of each method (column) on each set (row): 1 is the most accurate, ties share."""
    return accuracies.round(DECIMALS).rank(axis=1, ascending=False)


def critical_difference(n_methods: int, n_sets: int) -> float:
    """How far apart the mean ranks of two methods are before they differ at 95 %, by Nemenyi."""
    q = stats.studentized_range.ppf(CONFIDENCE, n_methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def alike(mean_ranks: pd.Series, difference: float) -> list[tuple[float, float]]:
    """The first and last rank of each largest group whose ranks lie within ``difference``."""
    ordered = mean_ranks.sort_values().tolist()
    found: list[tuple[float, float]] = []
    for first in ordered:
        last = max(rank for rank in ordered if rank - first <= difference)
        # One that ends where an earlier one does is part of it.
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
