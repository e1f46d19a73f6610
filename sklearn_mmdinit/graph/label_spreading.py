"""Label spreading on the graph of nearest neighbours, in which unlabelled rows take part."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import NearestNeighbors

from .edges import neighbor_graph

N_NEIGHBORS = 10
_N_ROUNDS = 100


def spread_labels(
    matrix: csr_array, start: np.ndarray, given: np.ndarray, alpha: float, n_rounds: int
) -> np.ndarray:
    """F (n, n_classes) after rounds of F <- alpha * matrix @ F + given, from F = start."""
    spread = start
    for _ in range(n_rounds):
        spread = alpha * (matrix @ spread) + given
    return spread


class Neighborhood:
    """Rows X (n, p) and S = D^-1/2 W D^-1/2; W is their graph with edges in both directions."""

    def __init__(self, X: np.ndarray) -> None:
        edges = neighbor_graph(X, n_neighbors=N_NEIGHBORS)
        both_ways = (edges + edges.T).tocoo()
        # No degree is 0, because each row has neighbours.
        scale = 1.0 / np.sqrt(both_ways.sum(axis=1))
        data = both_ways.data * scale[both_ways.row] * scale[both_ways.col]
        self.matrix = csr_array((data, (both_ways.row, both_ways.col)), shape=both_ways.shape)
        self.search = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(X)

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # clones of a classifier share it, because it never changes

    def nearest(self, rows: np.ndarray, n_neighbors: int = N_NEIGHBORS) -> np.ndarray:
        """Indices (n, n_neighbors) of the rows of the graph nearest to each of `rows` (n, p)."""
        indices: np.ndarray = self.search.kneighbors(rows, n_neighbors, return_distance=False)
        return indices


class NeighborSpreading(ClassifierMixin, BaseEstimator):
    """Label spreading (Zhou et al., 2004): F <- alpha S F + (1 - alpha) Y.

    A row to predict gets the mean of F over its nearest neighbours. Unlike LabelSpreading of
    scikit-learn, this searches neighbours once for all fits, weighs edges by shared neighbours, and
    returns no NaN for rows that no label reaches.
    """

    def __init__(self, neighborhood: Neighborhood, alpha: float = 0.99) -> None:
        self.neighborhood = neighborhood
        self.alpha = alpha

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Spread labels y (n,). Each starts at the row of the graph nearest to its row of X."""
        self.classes_, indices = np.unique(y, return_inverse=True)
        matrix, (nearest,) = self.neighborhood.matrix, self.neighborhood.nearest(X, 1).T
        given = np.zeros((matrix.shape[0], len(self.classes_)))
        np.add.at(given, (nearest, indices), 1.0 - self.alpha)
        spread = spread_labels(matrix, given, given, self.alpha, _N_ROUNDS)
        self.label_distributions_ = _divided_by_sums(spread, 0.0)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Mean of the nearest rows' distributions (n, n_classes); uniform if all are 0."""
        votes = self.label_distributions_[self.neighborhood.nearest(X)].sum(axis=1)
        return _divided_by_sums(votes, 1.0 / len(self.classes_))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """The most probable class (n,)."""
        best: np.ndarray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return best


def _divided_by_sums(votes: np.ndarray, default: float) -> np.ndarray:
    """Each row divided by its sum, or filled with the default if that is 0."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.where(totals > 0, votes / np.where(totals > 0, totals, 1.0), default)
