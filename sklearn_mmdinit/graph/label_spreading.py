"""Label spreading on the graph of nearest neighbours, in which unlabelled rows take part."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.neighbors import NearestNeighbors

from .edges import neighbor_graph

N_NEIGHBORS = 10
_N_ROUNDS = 100


class NeighborSpreading:
    """Label spreading (Zhou et al., 2004): F <- alpha S F + (1 - alpha) Y.

    S = D^-1/2 W D^-1/2, and W is the graph of rows with edges in both directions. A row to predict
    gets the mean of F over its nearest neighbours. Unlike LabelSpreading of scikit-learn, this
    weighs edges by shared neighbours, and returns no NaN for rows that no label reaches.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, X: np.ndarray, given: np.ndarray) -> Self:
        """Spread labels among rows X (n, p); `given` (n, n_classes) is 1 at a label, else 0."""
        edges = neighbor_graph(X, n_neighbors=N_NEIGHBORS)
        both_ways = (edges + edges.T).tocoo()
        # No degree is 0, because each row has neighbours.
        scale = 1.0 / np.sqrt(both_ways.sum(axis=1))
        both_ways.data *= scale[both_ways.row] * scale[both_ways.col]
        matrix, start = both_ways.tocsr(), (1.0 - self.alpha) * given
        spread = start
        for _ in range(_N_ROUNDS):
            spread = self.alpha * (matrix @ spread) + start
        self.label_distributions_ = _divided_by_sums(spread, 0.0)
        self._search = NearestNeighbors(n_neighbors=N_NEIGHBORS, algorithm="brute").fit(X)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Mean of the nearest rows' distributions (n, n_classes); uniform if all are 0."""
        nearest = self._search.kneighbors(X, return_distance=False)
        votes = self.label_distributions_[nearest].sum(axis=1)
        return _divided_by_sums(votes, 1.0 / votes.shape[1])


def _divided_by_sums(votes: np.ndarray, default: float) -> np.ndarray:
    """Each row divided by its sum, or filled with the default if that is 0."""
    totals = votes.sum(axis=1, keepdims=True)
    return np.where(totals > 0, votes / np.where(totals > 0, totals, 1.0), default)
