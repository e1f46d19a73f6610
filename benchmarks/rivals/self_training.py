"""Self-training of a network: it labels rows that it is sure of, and learns them too."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.semi_supervised import SelfTrainingClassifier

__all__ = ["SelfTrainedNetwork"]

# What scikit-learn reads as "no label".
UNLABELLED = -1


class SelfTrainedNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's :class:`SelfTrainingClassifier` around a network, its unlabelled rows given.

    ``cross_val_score`` hands over labelled rows alone, so the unlabelled ones are a parameter.
    Rows with pseudo-labels train the network and never choose its epoch: the rows that its
    ``validation_split`` takes from the labelled ones do that in every round.

    Parameters
    ----------
    network : MLPClassifier
        Unfitted. Every round fits it anew from the same start.
    X_unlabelled : ndarray, shape (n_unlabelled, n_features)
        Rows to put pseudo-labels on.
    threshold : float, default=0.8
        Probability from which a prediction becomes a pseudo-label.
    max_iter : int, default=3
        Rounds of pseudo-labels. With 0 this is the network itself.
    """

    def __init__(
        self, network: Any, X_unlabelled: Any, threshold: float = 0.8, max_iter: int = 3
    ) -> None:
        self.network = network
        self.X_unlabelled = X_unlabelled
        self.threshold = threshold
        self.max_iter = max_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> SelfTrainedNetwork:
        """Train on labelled rows X (n, n_features) with labels y (n,), none of them -1.

        Raises
        ------
        ValueError
            If a label is -1, which stands for none.
        """
        X, y = np.asarray(X), np.asarray(y)
        if np.any(y == UNLABELLED):
            raise ValueError(f"y holds the label {UNLABELLED}, which stands for rows without one")
        network, train = clone(self.network), np.arange(len(X))
        if network.validation_split is not None:
            train, valid = next(iter(network.validation_split.split(X, y)))
            network.set_params(validation_split=(X[valid], y[valid]))
        self.model_ = SelfTrainingClassifier(
            network, threshold=self.threshold, max_iter=self.max_iter
        )
        no_labels = np.full(len(self.X_unlabelled), UNLABELLED, dtype=y.dtype)
        self.model_.fit(
            np.concatenate([X[train], self.X_unlabelled]), np.concatenate([y[train], no_labels])
        )
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels (n,) of rows X (n, n_features)."""
        return self.model_.predict(X)
