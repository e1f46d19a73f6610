"""Labels of any kind to class indices."""

from __future__ import annotations

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

__all__ = ["indices_of", "learn_classes"]


def learn_classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes of labels, and the index of each label among them.

    Raises
    ------
    ValueError
        If the labels are not of classes, or all of one class.
    """
    check_classification_targets(y)
    classes, indices = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y needs at least two classes, but all its labels are of one class: {classes.tolist()}"
        )
    return classes, indices


def indices_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The index of each validation label among the classes of the training labels.

    Raises
    ------
    ValueError
        If a label is not among them.
    """
    if unknown := sorted(set(np.unique(y).tolist()) - set(classes.tolist())):
        raise ValueError(
            f"y_val of validation_split holds labels that y does not: {unknown}; "
            f"y has {classes.tolist()}"
        )
    return np.searchsorted(classes, y)
