"""A classifier that is trained on changed copies of the labelled rows too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

__all__ = ["AugmentedClassifier"]


class AugmentedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Each labelled row comes with changed copies of it, under its own label.

    Parameters
    ----------
    estimator : classifier
        Unfitted. A splitter of its own that cuts off the last rows finds the copies of a row
        beside it, so that none validates what it was trained on.
    augmentation : callable
        ``augmentation(rows, rng)``: the rows, changed.
    n_copies : int
        Changed copies of a row.
    random_state : int, default=0
        Of the changes.
    """

    def __init__(
        self,
        estimator: Any,
        augmentation: Callable[[np.ndarray, np.random.Generator], np.ndarray],
        n_copies: int,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.augmentation = augmentation
        self.n_copies = n_copies
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> AugmentedClassifier:
        """Train on rows X (n, n_features) with labels y (n,), and on copies of them."""
        X, each = np.asarray(X), 1 + self.n_copies
        rows = np.repeat(X, each, axis=0)
        rows = self.augmentation(rows, np.random.default_rng(self.random_state))
        rows[::each] = X
        self.estimator_ = clone(self.estimator).fit(rows, np.repeat(y, each))
        self.classes_ = self.estimator_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels (n,) of rows X (n, n_features), as they are."""
        return self.estimator_.predict(X)
