"""How much each labelled row counts in the loss."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

__all__ = ["check_class_weight", "class_weights", "given_weights"]


def check_class_weight(class_weight: Any) -> None:
    """Raise a ValueError unless it is None, "balanced" or a dict of valid weights."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f'class_weight must be None, "balanced" or a dict of weights, got {class_weight!r}'
        )
    for label, weight in class_weight.items():
        if not (isinstance(weight, Real) and 0 <= float(weight) < np.inf):
            raise ValueError(
                "class_weight must hold finite numbers >= 0, got "
                f"{weight!r} for the class {label!r}"
            )


def given_weights(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """The caller's weights as an array of float64 of shape (n_rows,); None where there are none.

    Raises
    ------
    ValueError
        If they have another shape, or are not all finite and at least 0.
    """
    if sample_weight is None:
        return None
    weights: np.ndarray = _check_sample_weight(sample_weight, np.empty(n_rows), dtype=np.float64)
    if (weights < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {weights.min()}")
    with np.errstate(over="ignore"):
        summable = np.isfinite(weights.sum())
    # Only their ratios count.
    return weights if summable else weights / weights.max()


def class_weights(
    class_weight: Any,
    classes: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
) -> np.ndarray | None:
    r"""Weight of each class, by which the weights of its rows are multiplied.

    Parameters
    ----------
    class_weight : None, "balanced" or dict
        "balanced" is :math:`W / (C W_c)` with W the sum of the rows' weights, W_c of those of
        class c, and C classes; so that each class counts the same in total.
    classes : ndarray of shape (n_classes,)
        Labels.
    y : ndarray of int of shape (n_samples,)
        Class of each row, counted from 0.
    weights : ndarray of shape (n_samples,), optional
        Weight of each row; 1 by default.

    Returns
    -------
    ndarray of float64 of shape (n_classes,), or None
        None where all classes have the weight 1.

    Raises
    ------
    ValueError
        If a dict names a class that y lacks and lacks a class that y has.
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
        raise ValueError(
            f"class_weight names {unknown}, which y does not have, and not {missing}; "
            f"y has {labels}"
        )
    return np.array([float(class_weight.get(label, 1.0)) for label in labels])
