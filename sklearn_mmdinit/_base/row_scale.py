"""The scale of rows: mean and variance of each column, and whether two scales agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.preprocessing import normalize
from sklearn.utils import gen_batches

from .validation import warn_user

_NUMBERS_AT_A_TIME = 1 << 20  # float64 numbers of a block: 8 MiB
_ROWS_COMPARED = 256
# With fewer rows, or fewer values in them, a difference may be chance.
_FEWEST_ROWS, _FEWEST_NUMBERS = 5, 100
# Limits of the three ratios of `compare_scales`. On the same scale each ratio is about 1. Scales
# differ if median_distance > _FAR, or if mean_distance < _NEAR and variance < _NARROW. Pixels from
# 0 to 1 have less than 1/9 of the variance of standardized ones. Rows of a single cluster have
# little variance too, but they lie away from the mean of all rows, so mean_distance stays above
# _NEAR.
_FAR, _NEAR, _NARROW = 5.0, 1 / 2, 1 / 8


def _blocks(X: Any) -> Iterator[np.ndarray]:
    """Yield rows X (n, ...), dense or sparse, in blocks (n_rows, n_columns) of float64."""
    n_numbers = max(math.prod(X.shape[1:]), 1)
    for rows in gen_batches(X.shape[0], max(_NUMBERS_AT_A_TIME // n_numbers, 1)):
        block = X[rows].toarray() if issparse(X) else X[rows]
        yield np.asarray(block, dtype=np.float64).reshape(len(block), -1)


@dataclass(frozen=True)
class RowMoments:
    """Number of rows; mean, and sum of squared deviations, of each column."""

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
        """Variance of each column; 0 if it is so small that it may be a rounding error."""
        variance = np.asarray(self.squares / self.n)
        rounding = np.square(self.n * np.finfo(np.float64).eps * self.mean)
        return np.where(variance <= rounding, 0.0, variance)


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows X (n, p) of floats, each scaled to unit norm; a row of zeros stays."""
    # First divided, exactly, by a power of 2 near the largest entry, so that squares neither
    # overflow nor vanish.
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True, initial=0.0))
    return np.asarray(normalize(np.ldexp(X, -exponents)))


def compare_scales(X: Any, mean: np.ndarray, spread: np.ndarray) -> tuple[float, float, float]:
    """Compare rows X (n, ...) with earlier rows, whose means and standard deviations are given.

    Returns three ratios, each about 1 if both have the same scale:

    - median_distance: the median over the rows of X of the squared distance from `mean`, divided
      by the mean squared distance of the earlier rows. A median ignores the few rows that lie far
      away because they have a rare category.
    - mean_distance: the mean squared distance of X from `mean`, divided by that of the earlier
      rows.
    - variance: the total variance of X, divided by that of the earlier rows.

    Columns that did not vary in the earlier rows are left out. The last two ratios also leave out
    columns that do not vary in X, because a rare category may be missing there by chance. These two
    are 1 if the remaining columns have fewer than 100 entries in all. All three are 1 if X has
    fewer than 5 rows, or if no column varied in the earlier rows.
    """
    X = X[:: -(-X.shape[0] // _ROWS_COMPARED)]
    mean, squares = mean.ravel().astype(np.float64), np.square(spread.ravel().astype(np.float64))
    known, total = squares > 0, squares.sum()
    if X.shape[0] < _FEWEST_ROWS or total == 0:
        return 1.0, 1.0, 1.0
    away = [np.square(block - mean)[:, known].sum(axis=1) / total for block in _blocks(X)]
    median_distance = float(np.median(np.concatenate(away)))
    moments = RowMoments().with_rows(X)
    varies = known & (moments.variance > 0)
    if moments.n * varies.sum() < _FEWEST_NUMBERS:
        return median_distance, 1.0, 1.0
    variance, total = moments.variance[varies].sum(), squares[varies].sum()
    shift = np.square(moments.mean - mean)[varies].sum()
    mean_distance = float((variance + shift) / total)
    return median_distance, mean_distance, float(variance / total * moments.n / (moments.n - 1))


@np.errstate(over="ignore", invalid="ignore")  # values too large for float32 raise elsewhere
def warn_if_another_scale(X: Any, mean: np.ndarray | None, spread: np.ndarray | None) -> None:
    """Warn if rows X (n, ...) are on another scale than those that a theta0 was learned from."""
    if mean is None or spread is None or X.shape[1:] != mean.shape:
        return
    median_distance, mean_distance, variance = compare_scales(X, mean, spread)
    if median_distance > _FAR:
        size = median_distance
        what = "lie {} times as far from the mean of the learned rows as the learned rows do"
    elif mean_distance < _NEAR and variance < _NARROW:
        size, what = variance, "vary {} times as much as the learned rows"
    else:
        return
    how = what.format(f"{math.sqrt(size):.1g}" if size < 1 else f"{math.sqrt(size):.2g}")
    warn_user(
        f"X is on another scale than the rows that theta0 was learned from: rows of X {how}. On "
        "another scale the learned weights help little. Fit the preprocessing once, and apply it "
        "to both: for example, the same StandardScaler before the initializer and the classifier"
    )
