"""The rows that an initializer is given, checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import validate_data

from .._compute import array_of

__all__ = ["examples_checked", "rows_checked"]


def rows_checked(estimator: Any, X: Any, *, reset: bool, **checks: Any) -> np.ndarray:
    """Rows (n, n_features) of a perceptron, as scikit-learn checks them."""
    return np.asarray(validate_data(estimator, array_of(X), reset=reset, **checks))


def examples_checked(
    estimator: Any,
    X: Any,
    y: Any = "no_validation",
    *,
    reset: bool,
    shape: tuple[int, ...] | None = None,
    **checks: Any,
) -> Any:
    """Examples (n, ...) of a module, in whatever shape it takes them, as numbers of their type.

    Parameters
    ----------
    estimator : estimator
        Learns ``n_features_in_``, the numbers of an example, and names of columns where there
        are some.
    X : array-like of shape (n, ...)
        Examples.
    y : array-like of shape (n,), default="no_validation"
        Their labels, which are checked and returned too where they are given.
    reset : bool
        Whether to learn, or to compare with what was learned.
    shape : tuple of int, default=None
        Of the examples before; None: any.
    **checks : dict
        For :func:`sklearn.utils.check_array`.

    Raises
    ------
    ValueError
        If they are no finite numbers, or of another shape.
    """
    checks.pop("dtype", None)
    X = array_of(X)
    alone = isinstance(y, str) and y == "no_validation"
    if (X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim) == 2:
        checked = validate_data(estimator, X, y, reset=reset, **checks)
        found = checked if alone else checked[0]
    else:
        if alone:
            checked = check_array(X, allow_nd=True, input_name="X", **checks)
        else:
            checked = check_X_y(X, y, allow_nd=True, estimator=estimator, **checks)
        found = checked if alone else checked[0]
        if reset:
            # Forgets names of columns that it may have had.
            validate_data(estimator, found, reset=True, skip_check_array=True)
            estimator.n_features_in_ = math.prod(found.shape[1:])
    if shape is not None and found.shape[1:] != shape:
        raise ValueError(
            f"X has examples of shape {found.shape[1:]}, but {type(estimator).__name__} was "
            f"fitted on examples of shape {shape}"
        )
    return checked
