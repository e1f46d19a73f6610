"""Label spreading on a graph of nearest neighbours."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors


@dataclass(eq=False, repr=False)
class GraphLabelSpreading(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label spreading (Zhou et al., 2004) on a nearest-neighbour graph that was made before.

    scikit-learn's own :class:`LabelSpreading` searches the neighbours of all 60,000 rows again in
    every fit; otherwise this is the same.
    """

    spread: csr_array  # S of normalized_graph over the training rows
    neighbors: np.ndarray  # (n_rows, k): of all rows the nearest training rows
    alpha: float = 0.99
    n_iter: int = 100

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Spread the labels y (n,) of the training rows numbered X (n, 1) over all of them."""
        self.classes_, indices = np.unique(y, return_inverse=True)
        labels = X.ravel(), indices, len(self.classes_)
        first = 1.0 - self.alpha
        scores = spread_labels(self.spread, *labels, self.alpha, self.n_iter, first)
        totals = scores.sum(axis=1, keepdims=True)
        # A row that no label reaches votes for none.
        self.label_distributions_ = scores / np.where(totals > 0.0, totals, 1.0)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels (n,) of the rows numbered X (n, 1): the vote of their neighbours."""
        votes = self.label_distributions_[self.neighbors[X.ravel()]].sum(axis=1)
        return self.classes_[votes.argmax(axis=1)]


def symmetric_graph(neighbors: np.ndarray, shared: float = 0.0) -> csr_array:
    """W (n, n) of rows (n, k) of neighbours: 1 each way, times a power of the shared ones + 1."""
    n, k = neighbors.shape
    ends = np.arange(0, n * k + 1, k)
    directed = csr_array((np.ones(n * k), neighbors.ravel(), ends), shape=(n, n))
    if shared:
        common = directed.multiply(directed @ directed.T).tocsr() + directed
        directed = csr_array((common.data**shared, common.indices, common.indptr), shape=(n, n))
    return directed + directed.T


def normalized_graph(graph: csr_array) -> csr_array:
    """S = D^-1/2 W D^-1/2 (n, n) of the symmetric weights W of a graph."""
    graph = graph.tocoo()
    # Every row has k neighbours at least, so no degree is 0.
    scale = 1.0 / np.sqrt(graph.sum(axis=1))
    n = len(scale)
    rows, columns = graph.coords
    return csr_array((graph.data * scale[rows] * scale[columns], (rows, columns)), shape=(n, n))


def spread_labels(
    spread: csr_array,
    rows: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    alpha: float,
    n_iter: int,
    first: float = 1.0,
) -> np.ndarray:
    """Scores F (n, n_classes) of all rows, in the dtype of S, from numbers y of some rows' classes.

    F <- alpha S F + (1 - alpha) Y, ``n_iter`` times, from ``first`` times Y on.
    """
    labels = np.zeros((spread.shape[0], n_classes), dtype=spread.dtype)
    labels[rows, y] = 1.0
    scores, clamped = first * labels, (1.0 - alpha) * labels
    for _ in range(n_iter):
        scores = alpha * (spread @ scores) + clamped
    return scores


def nearest_rows(X: np.ndarray, n_train: int, n_neighbors: int, n_jobs: int) -> np.ndarray:
    """The nearest (n, n_neighbors) of the first rows of X, a row itself left out."""
    search = NearestNeighbors(n_neighbors=n_neighbors, n_jobs=n_jobs).fit(X[:n_train])
    # Without an argument scikit-learn asks for the neighbours of the fitted rows, each
    # without itself.
    inside = search.kneighbors(return_distance=False)
    outside = search.kneighbors(X[n_train:], return_distance=False)
    return np.concatenate([inside, outside]).astype(np.int32)
