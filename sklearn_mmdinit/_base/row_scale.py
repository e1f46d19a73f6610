"""The scale of rows: mean and spread of each number of an example, and whether two scales agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import gen_batches

from .validation import warn_user

_NUMBERS_AT_A_TIME = 1 << 20  # float64 numbers of a block: 8 MiB
_ROWS_COMPARED = 256
# Fewer rows, or fewer numbers in them, may lie off by chance.
_FEWEST_ROWS, _FEWEST_NUMBERS = 5, 100
# Squares that are 1 on the same scale. Pixels from 0 to 1 vary by less than 1/9, standardised ones
# by 1, and rows of a single cluster vary little too, but about another mean.
_FAR, _NARROW, _NEAR = 5.0, 1 / 8, 1 / 2


def _blocks(X: Any) -> Iterator[np.ndarray]:
    """Rows X (n, ...), dense or sparse, as blocks (n_rows, n_numbers) in float64."""
    n_numbers = max(math.prod(X.shape[1:]), 1)
    for rows in gen_batches(X.shape[0], max(_NUMBERS_AT_A_TIME // n_numbers, 1)):
        block = X[rows].toarray() if issparse(X) else X[rows]
        yield np.asarray(block, dtype=np.float64).reshape(len(block), -1)


@dataclass(frozen=True)
class RowMoments:
    """Number, mean and sum of squared deviations of rows, read a block at a time."""

    n: int = 0
    mean: Any = 0.0
    squares: Any = 0.0

    def with_rows(self, X: Any) -> RowMoments:
        """The moments of these rows and further ones X (n, ...)."""
        n, mean, squares = self.n, self.mean, self.squares
        for block in _blocks(X):
            n, before = n + len(block), n
            away = block.mean(axis=0)
            inside = np.square(block - away).sum(axis=0)
            away -= mean
            mean = mean + away * (len(block) / n)
            squares = squares + inside + np.square(away) * (before * len(block) / n)
        return RowMoments(n, mean, squares)

    @property
    def variance(self) -> np.ndarray:
        """Mean squared deviation, exactly 0 where it may come of rounding."""
        variance = np.asarray(self.squares / self.n)
        rounding = np.square(self.n * np.finfo(np.float64).eps * self.mean)
        return np.where(variance <= rounding, 0.0, variance)


def compare_scales(X: Any, mean: np.ndarray, spread: np.ndarray) -> tuple[float, float, float]:
    """How far rows X (n, ...) lie from a mean, and how much they vary, by these spreads.

    Three squares, each near 1 on the same scale. The first is the median over the rows of their
    squared distance from the mean, over that of the rows that mean and spread are of. A median,
    because an entry of a rare category is far off in few rows. The others are the mean of these
    squares and the variance of X, over the columns that vary in X alone: a rare category that does
    not occur says nothing. Too few numbers give 1 for both. Columns without spread are left out.
    """
    X = X[:: -(-X.shape[0] // _ROWS_COMPARED)]
    mean, squares = mean.ravel().astype(np.float64), np.square(spread.ravel().astype(np.float64))
    known, total = squares > 0, squares.sum()
    if X.shape[0] < _FEWEST_ROWS or total == 0:
        return 1.0, 1.0, 1.0
    away = [np.square(block - mean)[:, known].sum(axis=1) / total for block in _blocks(X)]
    far = float(np.median(np.concatenate(away)))
    moments = RowMoments().with_rows(X)
    varies = known & (moments.variance > 0)
    if moments.n * varies.sum() < _FEWEST_NUMBERS:
        return far, 1.0, 1.0
    variance, total = moments.variance[varies].sum(), squares[varies].sum()
    shift = np.square(moments.mean - mean)[varies].sum()
    near = float((variance + shift) / total)
    return far, near, float(variance / total * moments.n / (moments.n - 1))


@np.errstate(over="ignore", invalid="ignore")  # values too large for float32 raise elsewhere
def warn_if_another_scale(X: Any, mean: np.ndarray | None, spread: np.ndarray | None) -> None:
    """Warn if rows X (n, ...) are on another scale than those that a theta0 was learned from."""
    if mean is None or spread is None or X.shape[1:] != mean.shape:
        return
    far, near, variance = compare_scales(X, mean, spread)
    if far > _FAR:
        size, what = far, "lie {} times as far from the mean of those rows as these do themselves"
    elif near < _NEAR and variance < _NARROW:
        size, what = variance, "vary {} times as much as those do"
    else:
        return
    how = what.format(f"{math.sqrt(size):.1g}" if size < 1 else f"{math.sqrt(size):.2g}")
    warn_user(
        f"X is on another scale than the rows that theta0 was learned from: its rows {how}. On "
        "another scale the learned weights are worth little. Apply the same preprocessing, fitted "
        "once, to both: a StandardScaler before the initializer and the classifier, for example"
    )
