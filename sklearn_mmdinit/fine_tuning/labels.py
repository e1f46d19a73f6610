"""Which rows are in the loss, as which class, with which weight; which choose the best epoch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from .._base.environment import array_of
from .._base.validation import add_error_context, check_number, finite_array, warn_user

# Fewer labelled rows than these, and no others, are hardly what an initializer was meant for.
_FEW_ROWS = 100


def further_rows(X_unlabelled: Any, validated: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Rows beside X, each array of them validated: none, those of one, or those of a tuple."""
    if X_unlabelled is None:
        return ()
    further = X_unlabelled if isinstance(X_unlabelled, tuple) else (X_unlabelled,)
    with add_error_context("X_unlabelled"):
        return tuple(validated(X) for X in further)


def missing_in(y: np.ndarray) -> np.ndarray:
    """Which of some labels (n,) are NaN or None, or what pandas has for them, bool (n,)."""
    absent = [label is None or type(label).__name__ == "NAType" or label != label for label in y]
    return np.array(absent, dtype=bool)


def n_classes_in(y: Any) -> int | None:
    """How many classes labels have, -1, NaN and None aside; None where they are not two or more."""
    if y is None or (values := np.asarray(y, dtype=object)).ndim != 1:
        return None
    known = values[~missing_in(values)].tolist()
    if any(not isinstance(v, str | Real) or (isinstance(v, float) and v % 1 != 0) for v in known):
        return None  # of a regression
    n_classes = len(set(known) - {-1})
    return n_classes if n_classes >= 2 else None


def warn_if_few(X: Any, y: Any) -> None:
    """Say so where an initializer is about to learn from few rows, which all have a label."""
    n_rows, values = X.shape[0], np.asarray(y, dtype=object)
    if n_classes_in(y) is None or len(values) != n_rows or n_rows >= _FEW_ROWS:
        return
    if not (missing_in(values) | (values == -1)).any():
        said = (
            f"the start is learned from {n_rows} labelled rows alone; it is for many rows, with "
            "or without a label: pass them in X with unlabelled_label, or as X_unlabelled, to a "
            "classifier with warm_start_from=initializer, or fit the initializer on them first"
        )
        warn_user(said)


def check_parameters(class_weight: Any, unlabelled_label: Any) -> None:
    """Raise a ValueError where weights of classes, or the label of no class, cannot be these."""
    mark = unlabelled_label
    if not (mark is None or isinstance(mark, str | Real)):
        raise ValueError(f"unlabelled_label must be None, a number or a string, got {mark!r}")
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(f'class_weight must be None, "balanced" or a dict, got {class_weight!r}')
    for label, weight in class_weight.items():
        check_number(f"class_weight of {label!r}", weight)


def without_missing(y: Any, unlabelled_label: Any) -> tuple[Any, Any]:
    """Labels where another stands for each NaN and None, and which those are, bool (n_samples,)."""
    y = array_of(y)
    values = np.array(y, dtype=object)  # a copy
    missing = missing_in(values) if values.ndim == 1 else np.zeros(1, dtype=bool)
    if not missing.any():
        return y, np.False_
    if unlabelled_label is None or unlabelled_label == unlabelled_label:
        found = f"y holds NaN or None in {missing.sum()} rows, and {unlabelled_label=}"
        raise ValueError(f"{found}: float('nan') there says that these rows have no label")
    if missing.all():
        raise ValueError(f"y has no labelled rows: all {len(missing)} are NaN or None")
    values[missing] = values[~missing][0]
    return np.asarray(values.tolist()), missing


def is_labelled(y: np.ndarray, unlabelled_label: Any) -> np.ndarray:
    """Which rows have a label, bool (n_samples,); a ValueError where none has."""
    if unlabelled_label is None or unlabelled_label != unlabelled_label:  # NaN is taken out already
        if y.dtype.kind in "if" and len(found := np.unique(y)) > 2 and found[0] == -1:
            asked = (
                "-1 in y is learned as a class beside others; unlabelled_label=-1 says it is none"
            )
            warn_user(asked)
        return np.ones(len(y), dtype=bool)
    # A number never equals the text that stands for it: all rows would seem to have a label.
    text = {isinstance(y_i, str) for y_i in y} if y.dtype.kind == "O" else {y.dtype.kind in "UST"}
    name = f"unlabelled_label={unlabelled_label!r}"
    if isinstance(unlabelled_label, str) not in text:
        raise ValueError(f"{name} cannot stand among labels of dtype {y.dtype}")
    labelled = np.asarray(y != unlabelled_label, dtype=bool)
    if not labelled.any():
        raise ValueError(f"y has no labelled rows: all {len(y)} have {name}")
    return labelled


def warn_if_encoded(y: np.ndarray, labelled: np.ndarray, unlabelled_label: Any) -> None:
    """Say so where labels y (n,) may be codes of classes, the rows without one among them."""
    found = [] if unlabelled_label is None or not labelled.all() else np.unique(y).tolist()
    if found and found == [*range(len(found))]:
        said = (
            f"y has no rows with unlabelled_label={unlabelled_label!r}, and labels from 0 on: what "
            "encodes labels first, as VotingClassifier and cross_val_predict(method="
            "'predict_proba') do, makes a class of the unlabelled rows"
        )
        warn_user(said)


def learn_classes(
    y: np.ndarray, classes: Any = None, unlabelled_label: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The sorted classes, those given or those of y, and the index of each label among them."""
    check_classification_targets(y)
    if classes is not None:
        if np.ndim(classes) != 1:
            raise ValueError(f"classes must be a list of labels, got {classes!r}")
        check_classes(known := np.unique(np.asarray(classes)), unlabelled_label)
        return known, indices_of(y, known, "y", "classes")
    classes, indices = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must hold labels of at least two classes, got {classes.tolist()}")
    return classes, indices


def check_classes(classes: np.ndarray, unlabelled_label: Any) -> None:
    """Raise a ValueError unless a stream of rows can have these sorted classes."""
    if len(classes) < 2:
        raise ValueError(f"classes must be at least two, got {classes.tolist()}")
    if unlabelled_label is not None and unlabelled_label in (known := classes.tolist()):
        raise ValueError(f"classes={known} must not hold {unlabelled_label=}")


def indices_of(y: np.ndarray, classes: np.ndarray, name: str, known: str) -> np.ndarray:
    """The index of each label among the classes that `known` has; `name` is what y is called."""
    own = classes.tolist()
    if unknown := sorted(set(np.unique(y).tolist()) - set(own)):
        raise ValueError(f"{name} holds labels that {known} does not: {unknown} not in {own}")
    return np.searchsorted(classes, y)


def accuracy(y: Any, predicted: np.ndarray, sample_weight: Any, unlabelled_label: Any) -> float:
    """Share of the rows with a label (n_samples,) whose label is predicted."""
    y, missing = without_missing(y, unlabelled_label)
    y = column_or_1d(y)
    check_consistent_length(predicted, y, sample_weight)
    labelled = is_labelled(y, unlabelled_label) & ~missing
    if sample_weight is not None:
        sample_weight = np.asarray(sample_weight)[labelled]
    return float(accuracy_score(y[labelled], predicted[labelled], sample_weight=sample_weight))


def given_weights(sample_weight: Any, labelled: np.ndarray) -> np.ndarray | None:
    """The caller's weights of labelled rows as float64, at least 0; None where there are none."""
    if sample_weight is None:
        return None
    weights: np.ndarray = _check_sample_weight(sample_weight, labelled, dtype=np.float64)
    finite_array("sample_weight", weights)  # scikit-learn lets NaN through as a number alone
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {weights.min()}")
    with np.errstate(over="ignore"):
        summable = np.isfinite(weights.sum())
    # Only their ratios count.
    return (weights if summable else weights / weights.max())[labelled]


def class_weights(
    class_weight: Any, classes: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray | None:
    r"""Weight of each class (n_classes,), by which the weights of its rows are multiplied.

    "balanced" is :math:`W / (C W_c)` with W the sum of the rows' weights, W_c of those of class c,
    and C classes; so that each class counts the same in total.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        totals = np.bincount(y, weights, minlength=len(classes))
        # A class without weight has no row that could be weighted.
        return totals.sum() / (len(classes) * np.where(totals > 0, totals, np.inf))
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    # Of a class that a fold lacks, a weight does no harm; a misspelt one would.
    if unknown and (missing := [label for label in labels if label not in class_weight]):
        raise ValueError(f"class_weight names {unknown} and not {missing}, but y has {labels}")
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])


class Labelled(NamedTuple):
    """Rows X (n, ...), their classes y (n,) counted from 0, and weights (n,) above 0, if any."""

    X: Any
    y: np.ndarray
    weights: np.ndarray | None = None

    def take(self, index: np.ndarray) -> Self:
        """Some of the rows."""
        weights = None if self.weights is None else self.weights[index]
        return type(self)(self.X[index], self.y[index], weights)


def in_the_loss(
    X: Any, y: np.ndarray, weights: np.ndarray | None, by_class: np.ndarray | None
) -> Labelled:
    """Labelled rows with their weights times that of their class; those of weight 0 left out."""
    if by_class is not None:
        weights = by_class[y] if weights is None else by_class[y] * weights
    rows = Labelled(X, y, weights)
    if weights is None or (weights > 0).all():
        return rows
    if not (weights > 0).any():
        raise ValueError("no labelled row has a sample_weight and a class_weight above 0")
    return rows.take(np.flatnonzero(weights > 0))


def split_rows(
    validation_split: Any, X: Any, y: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of training and of validation rows, of all that have a label and a weight.

    By a fraction every class is in the training rows; of classes with one row each none is left to
    validate with.
    """
    name = f"validation_split={validation_split!r}"
    if hasattr(validation_split, "split") and not isinstance(validation_split, str):
        with add_error_context(name):
            return _first_split(validation_split, X, y)
    is_fraction = isinstance(validation_split, Real) and not isinstance(validation_split, bool)
    if not (is_fraction and 0 < validation_split < 1):
        valid = "a float above 0 and below 1, a splitter, a tuple (X_val, y_val) or None"
        raise ValueError(f"validation_split must be {valid}, got {validation_split!r}")
    # A stratified draw needs two rows of each class, and room for all classes on both sides.
    counts = np.bincount(y)
    n_classes, least = np.count_nonzero(counts), counts[counts > 0].min()
    n_valid = int(np.ceil(validation_split * len(y)))
    if least >= 2 and min(n_valid, len(y) - n_valid) >= n_classes:
        splitter = StratifiedShuffleSplit(1, test_size=float(validation_split), random_state=seed)
        with add_error_context(name):
            return next(splitter.split(X, y))
    order = np.random.RandomState(seed).permutation(len(y))
    _, first = np.unique(y[order], return_index=True)  # one of each class, which stays
    held_out = np.delete(order, first)[:n_valid]
    return np.setdiff1d(order, held_out), held_out


def _first_split(splitter: Any, X: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    split = next(iter(splitter.split(X, y)), None)
    if split is None:
        raise ValueError("the splitter gives no split")
    train, valid = map(np.asarray, split)
    if len(train) == 0 or len(valid) == 0:
        raise ValueError(f"it has {len(train)} training and {len(valid)} validation rows")
    if (last := max(train.max(), valid.max())) >= len(y):
        raise ValueError(f"it names row {last}, but only {len(y)} rows have a label and a weight")
    return train, valid


def stratified_folds(y: np.ndarray, n_folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows to train on and held out, of classes y (n,): each class is in every training part.

    So the only row of a class is never held out; where no two classes have two, there are no folds.
    """
    counts = np.bincount(y)
    (alone,), (others,) = np.nonzero(counts[y] < 2), np.nonzero(counts[y] >= 2)
    if np.count_nonzero(counts >= 2) < 2:
        return []
    splitter = StratifiedKFold(min(n_folds, counts.max()), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # Of classes with fewer rows than folds, which go to different ones.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        split = [*splitter.split(others, y[others])]
    return [(np.concatenate([alone, others[train]]), others[test]) for train, test in split]
