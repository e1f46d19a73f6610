"""Which rows a classifier trains on, with which weights, and which choose its best epoch."""

from __future__ import annotations

from typing import Any

import numpy as np

from .batches import Rows
from .inputs import CheckedInputs, named
from .labelled import Labelled, in_the_loss
from .labels import indices_of, is_labelled
from .validation import split_rows
from .weights import class_weights, given_weights

__all__ = ["TrainingRows"]


class TrainingRows(CheckedInputs):
    """An estimator that makes Rows of its arguments and parameters."""

    classes_: np.ndarray
    class_weight: Any
    unlabelled_label: Any
    validation_split: Any

    def _in_the_loss(
        self, X: Any, indices: np.ndarray, labelled: np.ndarray, sample_weight: Any
    ) -> tuple[Labelled, np.ndarray | None]:
        """The rows that have a label and a weight, and the weight of each class."""
        weights = given_weights(sample_weight, len(labelled))
        weights = None if weights is None else weights[labelled]
        by_class = class_weights(self.class_weight, self.classes_, indices, weights)
        X = X if labelled.all() else X[labelled]
        return in_the_loss(X, indices, weights, by_class), by_class

    def _rows(
        self, X: Any, indices: np.ndarray, labelled: np.ndarray, sample_weight: Any, seed: int
    ) -> Rows:
        """The rows to train on, with those that choose the best epoch."""
        rows, by_class = self._in_the_loss(X, indices, labelled, sample_weight)
        if self.validation_split is None:
            return rows.to_train()
        if isinstance(self.validation_split, tuple):
            return rows.to_train(self._given_validation(self.validation_split, by_class))
        train, valid = split_rows(self.validation_split, rows.X, rows.y, seed)
        return rows.take(train).to_train(rows.take(valid))

    def _given_validation(self, pair: tuple[Any, ...], by_class: np.ndarray | None) -> Labelled:
        if len(pair) != 2:
            raise ValueError(
                f"validation_split as a tuple must be (X_val, y_val), got {len(pair)} items"
            )
        with named("validation_split"):
            X, y = self._validated(*pair, reset=False)
        labelled = is_labelled(y, self.unlabelled_label)
        indices = indices_of(y[labelled], self.classes_, "y_val of validation_split", "y")
        return in_the_loss(X[labelled], indices, None, by_class)
