"""Label spreading on a nearest-neighbour graph that is made once."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors

__all__ = ["GraphLabelSpreading", "nearest_pool_rows", "normalized_graph"]


class GraphLabelSpreading(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label spreading (Zhou et al., 2004) on a nearest-neighbour graph that was made before.

    scikit-learn's own :class:`LabelSpreading` searches the neighbours of all 60,000 rows again
    in every fit, and has no probabilities where no label arrives; otherwise this is the same:
    F <- alpha S F + (1 - alpha) Y with S = D^-1/2 W D^-1/2.

    Parameters
    ----------
    spread : sparse array, shape (n_pool, n_pool)
        S, the normalised graph over the training rows.
    neighbors : ndarray of int, shape (n_rows, k)
        For each row, training and test, its nearest training rows.
    alpha : float
        Share of a row's label that comes from its neighbours.
    n_iter : int
        Number of steps.
    """

    def __init__(
        self, spread: csr_array, neighbors: np.ndarray, alpha: float = 0.99, n_iter: int = 100
    ) -> None:
        self.spread = spread
        self.neighbors = neighbors
        self.alpha = alpha
        self.n_iter = n_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> GraphLabelSpreading:
        """Spread the labels y (n,) of the pool rows numbered X (n, 1) over the pool."""
        self.classes_, indices = np.unique(y, return_inverse=True)
        clamped = np.zeros((self.spread.shape[0], len(self.classes_)))
        clamped[X.ravel(), indices] = 1.0 - self.alpha
        scores = clamped
        for _ in range(self.n_iter):
            scores = self.alpha * (self.spread @ scores) + clamped
        totals = scores.sum(axis=1, keepdims=True)
        # A row that no label reaches votes for none.
        self.label_distributions_ = scores / np.where(totals > 0.0, totals, 1.0)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels (n,) of the rows numbered X (n, 1): the vote of their pool neighbours."""
        votes = self.label_distributions_[self.neighbors[X.ravel()]].sum(axis=1)
        return self.classes_[votes.argmax(axis=1)]


def normalized_graph(neighbors: np.ndarray) -> csr_array:
    """S = D^-1/2 W D^-1/2 (n, n) of rows (n, k) of neighbours, W symmetric."""
    n, k = neighbors.shape
    ends = np.arange(0, n * k + 1, k)
    directed = csr_array((np.ones(n * k), neighbors.ravel(), ends), shape=(n, n))
    graph = (directed + directed.T).tocoo()
    # Every row has k neighbours at least, so no degree is 0.
    scale = 1.0 / np.sqrt(graph.sum(axis=1))
    rows, columns = graph.coords
    return csr_array((graph.data * scale[rows] * scale[columns], (rows, columns)), shape=(n, n))


def nearest_pool_rows(
    features: np.ndarray, n_pool: int, n_neighbors: int, n_jobs: int
) -> np.ndarray:
    """Indices (n, n_neighbors) of the nearest pool rows, a pool row itself left out."""
    search = NearestNeighbors(n_neighbors=n_neighbors, n_jobs=n_jobs).fit(features[:n_pool])
    # Without an argument scikit-learn asks for the neighbours of the fitted rows, each
    # without itself.
    inside = search.kneighbors(return_distance=False)
    outside = search.kneighbors(features[n_pool:], return_distance=False)
    return np.concatenate([inside, outside]).astype(np.int32)
