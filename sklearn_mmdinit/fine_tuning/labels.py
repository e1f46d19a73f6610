"""Labels and weights: the classes, the examples in the loss, and the validation set."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from .._base.validation import add_error_context, missing_in

# Classes


def learn_classes(y: np.ndarray, hint: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The classes in y, sorted, and the index of each label among them; `hint` ends an error."""
    if n_missing := missing_in(y).sum():
        raise ValueError(
            f"y has no label in {n_missing} examples, and a classifier needs a label for each: fit "
            "the initializer on all examples first, and pass those with a label here"
        )
    # Each label four times, because scikit-learn warns of classes with fewer than four labels.
    if len(y):
        check_classification_targets(np.repeat(y, 4))
    classes, indices = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        got = classes.tolist()
        raise ValueError(f"y must hold labels of at least two classes, got {got}{hint}")
    return classes, indices


def encode(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The index of each label of a validation set among the classes."""
    if unknown := sorted(set(y.tolist()) - set(classes.tolist())):
        raise ValueError(f"y_val holds labels {unknown} that are not in y: {classes.tolist()}")
    return np.searchsorted(classes, y)


# Weights


def checked_weights(sample_weight: Any, y: np.ndarray) -> np.ndarray | None:
    """The caller's weights (n,) in float64, checked; None if there are none."""
    if sample_weight is None:
        return None
    return _check_sample_weight(sample_weight, y, dtype=float, ensure_non_negative=True)


def class_weights(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray | None:
    r"""Weight of each class (n_classes,), a factor of the weights of its examples.

    "balanced" is :math:`W / (C W_c)` with W the sum of the examples' weights, W_c that of class c,
    and C classes. So each class has the same weight in total.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        totals = np.bincount(y, weights, minlength=len(classes))
        # A class without weight has no example in the loss.
        return totals.sum() / (len(classes) * np.where(totals > 0, totals, np.inf))
    return compute_class_weight(class_weight, classes=classes, y=classes[y])


def examples_in_loss(
    X: Any, y: np.ndarray, weights: np.ndarray | None, by_class: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Examples, classes, weights times class weights; without examples of weight 0."""
    if by_class is not None:
        weights = by_class[y] if weights is None else by_class[y] * weights
    if weights is None or (weights > 0).all():
        return X, y, weights
    if not (weights.min() >= 0 and 0 < weights.sum() < np.inf):
        valid = "must be finite, >= 0, and above 0 for some example"
        raise ValueError(f"sample_weight times class_weight {valid}, got {weights}")
    return take((X, y, weights), np.flatnonzero(weights > 0))


def take(arrays: tuple[Any, ...], index: np.ndarray) -> tuple[Any, ...]:
    """Some examples of each array; None stays None."""
    return tuple(None if array is None else array[index] for array in arrays)


# Splits


def split_examples(
    validation_split: Any, X: Any, y: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and validation examples.

    A fraction leaves each class at least one training example. If no class has two examples, there
    is no validation set.
    """
    with add_error_context(f"validation_split={validation_split!r}"):
        if hasattr(validation_split, "split"):
            (train, valid), *_ = validation_split.split(X, y)
            return np.asarray(train), np.asarray(valid)
        n_valid, counts = int(np.ceil(float(validation_split) * len(y))), np.bincount(y)
        n_train, counts = len(y) - n_valid, counts[counts > 0]
        # A stratified draw needs two examples of each class, one of them to train on, and room.
        has_enough = counts.min() >= max(2.0, len(y) / max(n_train, 1))
        if has_enough and min(n_valid, n_train) >= len(counts):
            splitter = StratifiedShuffleSplit(1, test_size=n_valid, random_state=seed)
            return next(splitter.split(X, y))
        order = np.random.RandomState(seed).permutation(len(y))
        _, kept = np.unique(y[order], return_index=True)
        valid = np.delete(order, kept)[:n_valid]
        return np.setdiff1d(order, valid), valid
