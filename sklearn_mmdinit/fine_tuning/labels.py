"""Labels and weights: which rows are in the loss, and which choose the best epoch."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from .._base.environment import array_of
from .._base.validation import (
    add_error_context,
    check_argument,
    finite_array,
    numbers,
    shortened,
    warn_user,
)

# Words that people write where a label is missing.
_NO_LABEL = {"?", "", "-1", "NA", "N/A", "nan", "NaN", "None", "unlabelled", "unlabeled"}
# An initializer is meant for many rows. It warns if it gets fewer than this and all have a label.
_FEW_ROWS = 100
_PASS_ALL_ROWS = (
    "fit the initializer on all rows first; or use a classifier with warm_start_from=initializer, "
    "and give it rows without a label too, as X_unlabelled or in X with y=unlabelled_label. In a "
    "parameter grid write FrozenEstimator(initializer), because the grid unfits an initializer"
)


# Missing labels


def check_marker(unlabelled_label: Any) -> None:
    """Raise a TypeError for pandas' NA."""
    if type(unlabelled_label).__name__ == "NAType":
        raise TypeError(
            "unlabelled_label must not be pandas.NA, which equals no value; write "
            "unlabelled_label=float('nan'), which also stands for None and pandas.NA in y"
        )


def missing_in(y: np.ndarray) -> np.ndarray:
    """Which labels (n,) are NaN, None or pandas' NA, bool (n,)."""
    missing = [label is None or type(label).__name__ == "NAType" or label != label for label in y]
    return np.array(missing, dtype=bool)


def one_for_each_row(X: Any, y: Any) -> Any:
    """Labels, one for each row of X; those of one column become (n,).

    A ``range`` stays: our estimators give an initializer the classes alone in this way.
    """
    if y is None or isinstance(y, range):
        return y
    y = np.asarray(array_of(y), dtype=object)
    check_consistent_length(X, y)
    return y if y.ndim > 1 and y.shape[1] != 1 else column_or_1d(y, dtype=object, warn=True)


def n_classes_in(y: Any) -> int | None:
    """How many classes labels have without -1, NaN and None; None if fewer than two."""
    if y is None or (labels := np.asarray(y, dtype=object)).ndim != 1:
        return None
    known = labels[~missing_in(labels)].tolist()
    if any(not isinstance(v, str | Real) or (isinstance(v, float) and v % 1 != 0) for v in known):
        return None  # targets of a regression
    n_classes = len(set(known) - {-1})
    return n_classes if n_classes >= 2 else None


def warn_if_few(X: Any, y: Any, advice: str = _PASS_ALL_ROWS) -> None:
    """Warn if an initializer is about to learn from few rows that all have a label."""
    n_rows, labels = X.shape[0], np.asarray(y, dtype=object)
    if n_classes_in(y) is None or len(labels) != n_rows or n_rows >= _FEW_ROWS:
        return
    # In this order: pandas' NA cannot be compared.
    if not (missing_in(labels).any() or (labels == -1).any()):
        warn_user(
            f"the initializer learns from {n_rows} labelled rows alone, but it is meant for many "
            f"rows, with or without a label: {advice}"
        )


def replace_missing(y: Any, unlabelled_label: Any) -> tuple[Any, Any]:
    """Labels, with a valid one in place of each NaN, None and pandas.NA, and a mask of these.

    Labels in one column (n, 1) are returned flat if some are missing.
    """
    y = array_of(y)
    labels = np.array(y, dtype=object)  # a copy
    if labels.shape[1:] == (1,):
        labels = labels[:, 0]
    missing = missing_in(labels) if labels.ndim == 1 else np.zeros(1, dtype=bool)
    if not missing.any():
        return y, np.False_
    if unlabelled_label is None or unlabelled_label == unlabelled_label:
        problem = f"y holds NaN or None in {missing.sum()} rows, and {unlabelled_label=}"
        raise ValueError(f"{problem}: set it to float('nan') if these rows have no label")
    if missing.all():
        raise ValueError(f"y has no labelled rows: all {len(missing)} are NaN or None")
    labels[missing] = labels[~missing][0]
    return np.asarray(labels.tolist()), missing


def is_labelled(y: np.ndarray, unlabelled_label: Any) -> np.ndarray:
    """Which rows have a label, bool (n_samples,); a ValueError if none has."""
    if unlabelled_label is None or unlabelled_label != unlabelled_label:  # NaN is replaced already
        return np.ones(len(y), dtype=bool)
    # A number never equals a string, so that all rows would seem to have a label.
    if isinstance(unlabelled_label, str) not in {isinstance(label, str) for label in y.tolist()}:
        all_are, hint = "numbers", "give a number"
        if isinstance(y.tolist()[0], str):
            label = next(iter(suspects_in(y)), str(unlabelled_label))
            all_are, hint = "strings", f"write unlabelled_label={label!r}"
        raise ValueError(
            f"{unlabelled_label=} can never equal a label, because all labels in y are {all_are}; "
            f"{hint}"
        )
    labelled = np.asarray(y != unlabelled_label, dtype=bool)
    if not labelled.any():
        raise ValueError(f"y has no labelled rows: all {len(y)} have {unlabelled_label=}")
    return labelled


def suspects_in(y: np.ndarray, classes: Any = None) -> list[Any]:
    """Values in y, other than these classes, that often stand for a missing label."""
    suspects: set[Any] = _NO_LABEL & {*y.tolist()} if y.dtype.kind in "UO" else set()
    # The classes -1 and 1 alone are an ordinary binary task.
    if y.dtype.kind in "if" and len(labels := np.unique(y)) > 2 and labels[0] == -1:
        suspects = {-1}
    named = [] if classes is None else np.ravel(classes).tolist()
    return [label for label in sorted(suspects) if label not in named]


def warn_of_suspects(suspects: list[Any], what: str, before: str = "", after: str = "") -> None:
    """Warn of each value in y that may stand for a missing label, and what it does in y."""
    for label in suspects:
        warn_user(
            f"{before}{label!r} in y {what}; set unlabelled_label={label!r} if it means no label"
            f"{after}"
        )


def warn_if_unmarked(
    y: np.ndarray,
    labelled: np.ndarray,
    unlabelled_label: Any,
    X_unlabelled: Any = None,
    classes: Any = (),
) -> None:
    """Warn if no row has the user's marker, or if a value that may be one is learned as a class.

    With X_unlabelled, y needs no marker. `classes` are those that the user named; None if the user
    could name them, but did not.
    """
    is_absent = unlabelled_label is not None and labelled.all()
    if not (labelled.all() or unlabelled_label != unlabelled_label):
        return
    absent = f"y has no rows with unlabelled_label={unlabelled_label!r}"
    suspects = suspects_in(y, classes)
    before = f"{absent}; " if is_absent else ""
    after = "; if it is a class, name all classes in fit(classes=)" if classes is None else ""
    warn_of_suspects(suspects, "is learned as a class", before, after)
    are_named = classes is not None and np.size(classes) > 0  # no class is one by mistake
    if suspects or not is_absent or X_unlabelled is not None or are_named:
        return
    labels, why = np.unique(y).tolist(), ""
    if labels == [*range(len(labels))]:
        why = (
            " If VotingClassifier or cross_val_predict(method='predict_proba') called fit, it "
            "made a class of the unlabelled rows: fit the initializer on all rows first, and pass "
            "only the rows with a label to VotingClassifier or cross_val_predict."
        )
    warn_user(
        f"{absent}, so that each of its values {shortened(str(labels), 100)} is learned as a "
        f"class.{why} If one of them means no label, pass it as unlabelled_label. If all rows have "
        "a label, set unlabelled_label=None"
    )


def validate_unlabelled(X_unlabelled: Any, validate: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The validated arrays of X_unlabelled, which is None, an array, or a tuple of arrays."""
    if X_unlabelled is None:
        return ()
    arrays = X_unlabelled if isinstance(X_unlabelled, tuple) else (X_unlabelled,)
    with add_error_context("X_unlabelled"):
        return tuple(validate(X) for X in arrays)


# Classes


def learn_classes(
    y: np.ndarray, classes: Any = None, unlabelled_label: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Sorted classes, the given ones or those of y, and the index of each label among them."""
    # Each label four times, because scikit-learn warns of classes with fewer than four labels.
    check_classification_targets(np.repeat(y, 4))
    if classes is None:
        classes, indices = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must hold labels of at least two classes, got {classes.tolist()}")
        return classes, indices
    if np.ndim(classes) != 1:
        raise ValueError(f"classes must be a list of labels, got {classes!r}")
    labels = (classes := np.unique(np.asarray(classes))).tolist()
    if len(labels) < 2:
        raise ValueError(f"classes must be at least two, got {labels}")
    if unlabelled_label is not None and unlabelled_label in labels:
        raise ValueError(f"classes={labels} must not hold {unlabelled_label=}")
    return classes, encode(y, classes, "y", "classes")


def encode(y: np.ndarray, classes: np.ndarray, name: str, classes_name: str) -> np.ndarray:
    """The index of each label among the classes; an error uses the names of both."""
    labels = classes.tolist()
    if unknown := sorted(set(np.unique(y).tolist()) - set(labels)):
        raise ValueError(f"{name} holds labels {unknown} that are not in {classes_name}: {labels}")
    return np.searchsorted(classes, y)


def accuracy(
    y: Any, predicted: np.ndarray, sample_weight: Any, unlabelled_label: Any, classes: np.ndarray
) -> float:
    """Share of the rows with a label (n_samples,) whose label is predicted."""
    y, missing = replace_missing(y, unlabelled_label)
    labelled = is_labelled(y := column_or_1d(y), unlabelled_label) & ~missing
    check_consistent_length(predicted, y)
    weights = validate_weights(sample_weight, labelled)
    warn_of_suspects(suspects_in(y[labelled], classes), "counts as a wrong prediction")
    return float(accuracy_score(y[labelled], predicted[labelled], sample_weight=weights))


# Weights


def validate_weights(sample_weight: Any, labelled: np.ndarray) -> np.ndarray | None:
    """The caller's weights of labelled rows, checked, as float64; None if there are none."""
    if sample_weight is None:
        return None
    weights: np.ndarray = _check_sample_weight(sample_weight, labelled, dtype=np.float64)
    finite_array("sample_weight", weights)  # scikit-learn does not check a single number for NaN
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {weights.min()}")
    return weights[labelled]


def class_weights(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray | None:
    r"""Weight of each class (n_classes,), a factor of the weights of its rows.

    "balanced" is :math:`W / (C W_c)` with W the sum of the rows' weights, W_c that of class c,
    and C classes. So each class has the same weight in total.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        totals = np.bincount(y, weights, minlength=len(classes))
        # A class without weight has no row in the loss.
        return totals.sum() / (len(classes) * np.where(totals > 0, totals, np.inf))
    for label, weight in class_weight.items():
        check_argument(f"class_weight of {label!r}", weight, numbers(0))
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    # A fold may lack a class, so the dict may name a class that y lacks. Such a name counts as a
    # mistake only if y, in turn, has a class that the dict lacks.
    if unknown and (missing := [label for label in labels if label not in class_weight]):
        raise ValueError(
            f"class_weight names {unknown}, which are not in y, and it does not name {missing}; "
            f"the classes of y are {labels}"
        )
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])


def rows_in_loss(
    X: Any, y: np.ndarray, weights: np.ndarray | None, by_class: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Rows, classes and weights. Weights are multiplied by those of classes; 0 leaves a row out."""
    if by_class is not None:
        weights = by_class[y] if weights is None else by_class[y] * weights
    if weights is None or (weights > 0).all():
        return X, y, weights
    if not (weights > 0).any():
        raise ValueError("no labelled row has a sample_weight and a class_weight above 0")
    return take((X, y, weights), np.flatnonzero(weights > 0))


def take(rows: tuple[Any, ...], index: np.ndarray) -> tuple[Any, ...]:
    """Some rows of each array; None stays None."""
    return tuple(None if array is None else array[index] for array in rows)


# Splits


def split_rows(
    validation_split: Any, X: Any, y: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and validation rows, among the rows with a label and a weight.

    A fraction leaves each class at least one training row. If no class has two rows, there are
    no validation rows.
    """
    with add_error_context(f"validation_split={validation_split!r}"):
        if hasattr(validation_split, "split"):
            return _split_of_splitter(validation_split, X, y)
        counts, n_valid = np.bincount(y), int(np.ceil(validation_split * len(y)))
        counts = counts[counts > 0]
        # A stratified draw needs two rows of each class, and room for all classes on both sides.
        if counts.min() < 2 or min(n_valid, len(y) - n_valid) < len(counts):
            return _split_keeping_one_row(y, n_valid, seed)
        splitter = StratifiedShuffleSplit(1, test_size=float(validation_split), random_state=seed)
        return next(splitter.split(X, y))


def _split_of_splitter(splitter: Any, X: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first split of a user's splitter; a ValueError if it does not fit these rows."""
    train, valid = map(np.asarray, next(iter(splitter.split(X, y)), ((), ())))
    if len(train) == 0 or len(valid) == 0:
        raise ValueError(f"the split has {len(train)} training and {len(valid)} validation rows")
    if (last := max(train.max(), valid.max())) >= len(y):
        of = f"only {len(y)} rows have a label and a weight"
        raise ValueError(f"the split names row {last}, but {of}")
    return train, valid


def _split_keeping_one_row(y: np.ndarray, n_valid: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random split that leaves each class at least one training row."""
    order = np.random.RandomState(seed).permutation(len(y))
    _, kept = np.unique(y[order], return_index=True)
    valid = np.delete(order, kept)[:n_valid]
    return np.setdiff1d(order, valid), valid
