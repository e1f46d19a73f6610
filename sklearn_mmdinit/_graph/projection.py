"""Rows of data in their first principal components, read by blocks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA

__all__ = ["principal_components"]

_BLOCK = 4096  # rows read at a time
_MOST_ENTRIES = 100_000_000  # of the rows that the components are learned from: 400 MB
_MOST_FEATURES = 2_000  # whose covariance is formed; its eigenvectors take a second


def principal_components(X: np.ndarray, n_components: int | None, *, seed: int = 0) -> np.ndarray:
    """Rows in the first principal components, the rows themselves where these are no fewer.

    Differences of rows are all that is kept: the mean is taken out in float64, so that float32
    has its digits for what tells the rows apart.

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
        Centred rows, contiguous.

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
    mean = np.zeros(p)
    for block in _blocks(rows):
        mean += X[block].sum(axis=0, dtype=np.float64) / rows.size
    if themselves:
        projected = np.empty((n, p), dtype=np.float32)
        for block in _blocks(np.arange(n)):
            projected[block] = X[block] - mean
        return projected
    axes = _axes(X, rows, mean, n_components, seed)  # (p, n_components)
    projected = np.empty((n, axes.shape[1]), dtype=np.float32)
    for block in _blocks(np.arange(n)):
        projected[block] = (X[block] - mean) @ axes
    return projected


def _axes(
    X: np.ndarray, rows: np.ndarray, mean: np.ndarray, n_components: int | None, seed: int
) -> np.ndarray:
    sample = np.empty((rows.size, X.shape[1]), dtype=np.float32)
    for block, where in zip(_blocks(rows), _blocks(np.arange(rows.size)), strict=True):
        sample[where] = X[block] - mean
    solver = "covariance_eigh" if X.shape[1] <= _MOST_FEATURES else "randomized"
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
