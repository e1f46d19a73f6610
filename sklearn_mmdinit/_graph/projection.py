"""Rows of data in their first principal components, read by blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA

__all__ = ["principal_components"]

_BLOCK = 4096  # rows read at a time
_MOST_ENTRIES = 100_000_000  # of the rows that the components are learned from: 400 MB
_MOST_FEATURES = 2_000  # whose covariance is formed; its eigenvectors take a second

# Powers of two between which the largest number is left as it is: squares of it and of numbers a
# millionth as large, and sums of such squares over all rows, are ordinary numbers of float32.
_SMALLEST, _LARGEST = -40, 40


def principal_components(X: np.ndarray, n_components: int | None, *, seed: int = 0) -> np.ndarray:
    """Rows in the first principal components, the rows themselves where these are no fewer.

    Differences of rows are all that is kept: the mean is taken out in float64, so that float32
    has its digits for what tells the rows apart. Where they are so large or so small that float32
    could not hold their squares, all are divided by one power of two.

    The components are learned from all rows or, of arrays larger than 400 MB in float32, from as
    many drawn at random; what is needed of a memory map in memory is these and the result.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Finite numbers.
    n_components : int or None
        How many components; None, or at least the smaller of n and p: the rows themselves.
    seed : int, default=0
        Of the draw of rows, and of the randomised decomposition beyond 2,000 features.

    Returns
    -------
    projected : ndarray of shape (n, n_components) or (n, p), float32
        Centred rows, contiguous; one power of two times these where they are very large or
        small.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit._graph.projection import principal_components
    >>> X = np.array([[1e9, 5.0, 0.0], [1e9 + 3, 5.0, 0.1], [1e9 + 6, 5.0, 0.0]])
    >>> np.abs(principal_components(X, 1)).round(3).ravel()
    array([3., 0., 3.], dtype=float32)
    """
    n, p = X.shape
    themselves = n_components is None or n_components >= min(n, p)
    rows = _drawn_rows(n, max(_MOST_ENTRIES // p, 10 * (n_components or 1)), seed)
    mean, low, high = np.zeros(p), np.full(p, np.inf), np.full(p, -np.inf)
    for block in _blocks(rows):
        taken = X[block]
        mean += taken.sum(axis=0, dtype=np.float64) / rows.size
        low, high = np.minimum(low, taken.min(axis=0)), np.maximum(high, taken.max(axis=0))
    factor = _factor(float(np.maximum(high - mean, mean - low).max()))

    def centred(block: slice | np.ndarray) -> np.ndarray:
        # float64; a factor of 1 leaves every bit.
        return (X[block] - mean) * factor

    if themselves:
        projected = np.empty((n, p), dtype=np.float32)
        for block in _blocks(np.arange(n)):
            projected[block] = centred(block)
        return projected
    sample = np.empty((rows.size, p), dtype=np.float32)
    for block, where in zip(_blocks(rows), _blocks(np.arange(rows.size)), strict=True):
        sample[where] = centred(block)
    axes = _axes(sample, n_components, seed)  # (p, n_components)
    projected = np.empty((n, axes.shape[1]), dtype=np.float32)
    for block in _blocks(np.arange(n)):
        projected[block] = centred(block) @ axes
    return projected


def _factor(largest: float) -> float:
    """1, or the power of two that brings a number far from it near 1."""
    exponent = math.frexp(largest)[1]
    ordinary = largest == 0.0 or _SMALLEST <= exponent <= _LARGEST
    # Beyond 1000 it would be infinity itself.
    return 1.0 if ordinary else math.ldexp(1.0, min(-exponent, 1000))


def _axes(sample: np.ndarray, n_components: int | None, seed: int) -> np.ndarray:
    solver = "covariance_eigh" if sample.shape[1] <= _MOST_FEATURES else "randomized"
    pca = PCA(n_components, svd_solver=solver, copy=False, random_state=seed).fit(sample)
    return pca.components_.T.astype(np.float64)


def _drawn_rows(n: int, most: int, seed: int) -> np.ndarray:
    if n <= most:
        return np.arange(n)
    # In order: a memory map is read from its beginning to its end.
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _blocks(rows: np.ndarray) -> Iterator[slice | np.ndarray]:
    """The rows in blocks; a slice, which copies nothing, where they follow one another."""
    for start in range(0, rows.size, _BLOCK):
        block = rows[start : start + _BLOCK]
        together = block[-1] - block[0] == block.size - 1
        yield slice(block[0], block[-1] + 1) if together else block
