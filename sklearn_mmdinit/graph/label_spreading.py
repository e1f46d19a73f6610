"""Labels spread over the graph of nearest neighbours, which knows rows without a label too."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors

from .edges import neighbor_graph

N_NEIGHBORS = 10
_N_ROUNDS = 100


class Neighborhood:
    """Rows X (n, p) and S = D^-1/2 W D^-1/2 (n, n), W being the edges of their graph each way."""

    def __init__(self, X: np.ndarray) -> None:
        edges = neighbor_graph(X, n_neighbors=N_NEIGHBORS, shared_neighbor_power=2.0)
        both = (edges + edges.T).tocoo()
        # Each row has its own neighbours: no degree is 0.
        scale = 1.0 / np.sqrt(both.sum(axis=1))
        data = both.data * scale[both.row] * scale[both.col]
        self.matrix = csr_array((data, (both.row, both.col)), shape=both.shape)
        self.search = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(X)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # nothing in it changes: clones of a classifier share it

    def nearest(self, X: np.ndarray, n_neighbors: int = N_NEIGHBORS) -> np.ndarray:
        """Numbers (n, n_neighbors) of the rows nearest to others."""
        found: np.ndarray = self.search.kneighbors(X, n_neighbors, return_distance=False)
        return found


class NeighborSpreading(ClassifierMixin, BaseEstimator):
    """Label spreading (Zhou et al., 2004): F <- alpha S F + (1 - alpha) Y; new rows by a vote.

    scikit-learn's own searches the neighbours again in every fit, on a graph that does not weigh
    edges by the neighbours their ends share, and has NaN where no label arrives.
    """

    def __init__(self, neighborhood: Neighborhood, alpha: float = 0.99) -> None:
        self.neighborhood = neighborhood
        self.alpha = alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Spread labels y (n,), each from the row nearest to its own, over the neighbourhood."""
        self.classes_, indices = np.unique(y, return_inverse=True)
        matrix, (places,) = self.neighborhood.matrix, self.neighborhood.nearest(X, 1).T
        given = np.zeros((matrix.shape[0], len(self.classes_)))
        np.add.at(given, (places, indices), 1.0 - self.alpha)
        spread = given
        for _ in range(_N_ROUNDS):
            spread = self.alpha * (matrix @ spread) + given
        self.label_distributions_ = _shares(spread, 0.0)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Mean shares (n, n_classes) of the nearest rows; all the same where no label arrives."""
        votes = self.label_distributions_[self.neighborhood.nearest(X)].sum(axis=1)
        return _shares(votes, 1.0 / len(self.classes_))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The class (n,) with the greatest share."""
        best: np.ndarray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return best


def _shares(votes: np.ndarray, of_none: float) -> np.ndarray:
    """Each row divided by its sum, where there is one."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.where(totals > 0, votes / np.where(totals > 0, totals, 1.0), of_none)
