"""Labels of any kind to class indices; which rows have one."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

__all__ = [
    "check_unlabelled_label",
    "given_classes",
    "indices_of",
    "is_labelled",
    "learn_classes",
    "warn_if_all_are_labelled",
]


def check_unlabelled_label(label: Any) -> None:
    """Raise a ValueError unless it is None or could stand among labels."""
    # NaN is equal to nothing, and no label of a classifier.
    if not (label is None or (isinstance(label, str | Real) and label == label)):
        raise ValueError(f"unlabelled_label must be None, a number or a string, got {label!r}")


def is_labelled(y: np.ndarray, unlabelled_label: Any) -> np.ndarray:
    """Which rows have a label, a bool array of shape (n_samples,).

    Raises
    ------
    ValueError
        If none has, or the label of the others cannot stand among those of y.
    """
    if unlabelled_label is None:
        return np.ones(len(y), dtype=bool)
    # A number never equals the text that stands for it: all rows would seem to have a label.
    if isinstance(unlabelled_label, str) not in _are_text(y):
        raise ValueError(
            f"unlabelled_label={unlabelled_label!r} cannot stand among labels of dtype {y.dtype}"
        )
    labelled = np.asarray(y != unlabelled_label, dtype=bool)
    if not labelled.any():
        raise ValueError(
            f"y has no labelled rows: all {len(y)} have unlabelled_label={unlabelled_label!r}"
        )
    return labelled


def _are_text(y: np.ndarray) -> set[bool]:
    """Whether labels are text: all, none, or some of them."""
    if y.dtype.kind == "O":
        return {isinstance(label, str) for label in y}
    return {y.dtype.kind in "UST"}


def warn_if_all_are_labelled(labelled: np.ndarray, unlabelled_label: Any) -> None:
    """Say so, since an estimator around the classifier may have hidden those that are not."""
    if unlabelled_label is not None and labelled.all():
        warnings.warn(
            f"y has no rows with unlabelled_label={unlabelled_label!r}: all are taken as labelled. "
            "An estimator that encodes labels before it hands them on, such as VotingClassifier, "
            "makes a class of the unlabelled ones",
            UserWarning,
            stacklevel=3,
        )


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


def given_classes(classes: Any, known: np.ndarray | None, unlabelled_label: Any) -> np.ndarray:
    """The sorted classes of a stream of rows.

    Parameters
    ----------
    classes : array-like of shape (n_classes,) or None
        What ``partial_fit`` was given.
    known : ndarray or None
        The classes so far; None before the first call.
    unlabelled_label : object
        What may not be among them.

    Raises
    ------
    ValueError
        If they are missing at first, differ later, or are no two classes.
    """
    if classes is None:
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return known
    given = np.unique(np.asarray(classes))
    if known is not None:
        if not np.array_equal(given, known):
            raise ValueError(
                f"classes={given.tolist()} is not the same as on the last call to partial_fit, "
                f"{known.tolist()}"
            )
        return known
    if len(given) < 2:
        raise ValueError(f"classes must be at least two, got {given.tolist()}")
    if unlabelled_label is not None and unlabelled_label in given.tolist():
        raise ValueError(
            f"classes={given.tolist()} must not hold unlabelled_label={unlabelled_label!r}"
        )
    return given


def indices_of(y: np.ndarray, classes: np.ndarray, name: str, known: str) -> np.ndarray:
    """The index of each label among classes that are known already.

    Raises
    ------
    ValueError
        If a label is not among them; `name` is what y is called, and `known` what has them.
    """
    if unknown := sorted(set(np.unique(y).tolist()) - set(classes.tolist())):
        raise ValueError(
            f"{name} holds labels that {known} does not: {unknown}; {known} has {classes.tolist()}"
        )
    return np.searchsorted(classes, y)
