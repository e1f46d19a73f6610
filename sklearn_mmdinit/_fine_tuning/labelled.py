"""The rows in the loss: those with a label and a weight above 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .batches import Rows

__all__ = ["Labelled", "in_the_loss"]


@dataclass(frozen=True)
class Labelled:
    """Rows with their classes and weights.

    Parameters
    ----------
    X : ndarray or CSR array of float32, of shape (n_samples, ...)
        Inputs.
    y : ndarray of int of shape (n_samples,)
        Class of each row, counted from 0.
    weights : ndarray of shape (n_samples,) or None
        Weight of each row, above 0; None: all the same.
    """

    X: Any
    y: np.ndarray
    weights: np.ndarray | None = None

    def take(self, index: np.ndarray) -> Labelled:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        return Labelled(self.X[index], self.y[index], weights)

    def to_train(self, valid: Labelled | None = None) -> Rows:
        """The rows for a net to train on, others to validate beside them."""
        return Rows(self.X, self.y, self._scaled(), None if valid is None else valid.to_train())

    def _scaled(self) -> np.ndarray | None:
        """Weights of mean 1: their mean over rows is the weighted mean, and float32 holds them."""
        return None if self.weights is None else self.weights / self.weights.mean()


def in_the_loss(
    X: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    by_class: np.ndarray | None,
) -> Labelled:
    """Labelled rows with their weights; those of weight 0 are left out.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, ...)
        Inputs.
    y : ndarray of int of shape (n_samples,)
        Class of each row, counted from 0.
    weights : ndarray of shape (n_samples,) or None
        Weight of each row.
    by_class : ndarray of shape (n_classes,) or None
        Weight of each class, by which that of its rows is multiplied.

    Raises
    ------
    ValueError
        If no row is left.
    """
    if by_class is not None:
        weights = by_class[y] if weights is None else by_class[y] * weights
    rows = Labelled(X, y, weights)
    if weights is None or (weights > 0).all():
        return rows
    if not (weights > 0).any():
        raise ValueError("no labelled row has a sample_weight and a class_weight above 0")
    return rows.take(np.flatnonzero(weights > 0))
