"""The scale of rows: mean and variance of each column, and whether two scales agree."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
# Limits of the ratios that `warn_if_another_scale` computes. Pixels from 0 to 1 have less than 1/9
# of the variance of standardized ones.
_FAR, _NEAR, _NARROW = 5.0, 1 / 2, 1 / 8


def _blocks(X: Any) -> Iterator[np.ndarray]:
    """Yield rows X (n, ...), dense or sparse, in blocks (n_rows, n_columns) of float64."""
    n_numbers = max(math.prod(X.shape[1:]), 1)
    for rows in gen_batches(X.shape[0], max(_NUMBERS_AT_A_TIME // n_numbers, 1)):
        block = X[rows].toarray() if issparse(X) else X[rows]
        yield np.asarray(block, dtype=np.float64).reshape(len(block), -1)


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows X (n, p) of floats, each scaled to unit norm; a row of zeros stays."""
    # First divided, exactly, by a power of 2 near the largest entry, so that squares neither
    # overflow nor vanish.
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True, initial=0.0))
    return np.asarray(normalize(np.ldexp(X, -exponents)))


def mean_and_variance(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each column of X (n, ...); 0 for a variance that may be rounding."""
    n, shift, sums, squares = X.shape[0], None, 0.0, 0.0
    for block in _blocks(X):
        shift = block.mean(axis=0) if shift is None else shift  # keeps the squares small
        sums = sums + (block - shift).sum(axis=0)
        squares = squares + np.square(block - shift).sum(axis=0)
    mean = shift + sums / n
    variance = squares / n - np.square(sums / n)
    rounding = np.square(n * np.finfo(np.float64).eps * mean)
    return mean, np.where(variance <= rounding, 0.0, variance)


@np.errstate(over="ignore", invalid="ignore")  # values too large for float32 raise elsewhere
def warn_if_another_scale(X: Any, mean: np.ndarray | None, spread: np.ndarray | None) -> None:
    """Warn if rows X (n, ...) are on another scale than those that a theta0 was learned from.

    `mean` and `spread` are the means and standard deviations of the learned rows. Each ratio below
    is about 1 if both scales agree. Columns that did not vary among the learned rows are left out.
    """
    if mean is None or spread is None or X.shape[1:] != mean.shape:
        return
    X = X[:: -(-X.shape[0] // _ROWS_COMPARED)]
    mean, squares = mean.ravel().astype(np.float64), np.square(spread.ravel().astype(np.float64))
    if X.shape[0] < _FEWEST_ROWS or not squares.any():
        return
    # Squared distances from the mean, as multiples of their mean over the learned rows. A median
    # ignores the few rows that lie far away because they have a rare category.
    away = [np.square(block - mean)[:, squares > 0].sum(axis=1) for block in _blocks(X)]
    far = float(np.median(np.concatenate(away)) / squares.sum())
    if far > _FAR:
        how = f"lie {math.sqrt(far):.2g} times as far from the mean of the learned rows as they do"
    else:
        # Columns that do not vary in X are left out too: a rare category may be missing there.
        n, (here, variances) = X.shape[0], mean_and_variance(X)
        varies = (squares > 0) & (variances > 0)
        if n * varies.sum() < _FEWEST_NUMBERS:
            return
        variance, total = variances[varies].sum(), squares[varies].sum()
        # Rows of a single cluster have little variance too, but lie away from the mean.
        near = (variance + np.square(here - mean)[varies].sum()) / total
        narrow = float(variance / total * n / (n - 1))
        if near >= _NEAR or narrow >= _NARROW:
            return
        how = f"vary {math.sqrt(narrow):.1g} times as much as the learned rows"
    warn_user(
        f"X is on another scale than the rows that theta0 was learned from: rows of X {how}. On "
        "another scale the learned weights help little. Fit the preprocessing once, and apply it "
        "to both: for example, the same StandardScaler before the initializer and the classifier"
    )
