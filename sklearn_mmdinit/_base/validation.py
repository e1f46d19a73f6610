"""What the estimators of this package share: checks of what they are given, failures undone."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
import psutil
from scipy.sparse import issparse
from sklearn.utils import check_scalar
from sklearn.utils.validation import validate_data

from .environment import array_of

# Of rows by which scales are judged, and the size of a column, its root mean square, beyond which
# weights of the usual size are far too large. Standardised ones have 1, digits 0..16 up to 13.
_ROWS_LOOKED_AT, _LARGE = 1000, 20.0
# And the length of a row below which they are far too small: pixels divided by 255 twice have 0.04.
_SHORT = 0.1
# How far sizes of all numbers of rows of one kind are apart at most, as a factor.
_APART = 3.0

_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)

P = ParamSpec("P")
R = TypeVar("R")


def all_or_nothing(method: Callable[P, R]) -> Callable[P, R]:
    """Take back what a method has set of its estimator if it raises, or is interrupted."""

    @wraps(method)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        own = vars(args[0])
        before = dict(own)
        try:
            return method(*args, **kwargs)
        except BaseException:
            own.clear()
            own.update(before)
            raise

    return whole


@contextmanager
def inside_another() -> Iterator[None]:
    """Trainings are whole or none in there: what comes of them does not look how far they got."""
    before = _INSIDE.set(True)
    try:
        yield
    finally:
        _INSIDE.reset(before)


def is_inside_another() -> bool:
    """Whether a training is a part of what somebody called."""
    return _INSIDE.get()


@contextmanager
def add_error_context(context: str) -> Iterator[None]:
    """Add a note to whatever fails in here: which argument or part it was; the error stays."""
    try:
        yield
    except Exception as error:
        error.add_note(context)
        raise


# Packages whose frames lie between a user's line and ours.
_NOT_OF_THE_USER = {"sklearn_mmdinit", "sklearn", "skorch", "joblib", "torch", "contextlib"}


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that led here, however many calls lie between."""
    frame, level = sys._getframe(1), 2
    while (
        frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_OF_THE_USER
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_fits_in_memory(n_numbers: float, what: str) -> None:
    """Raise a ValueError where so many numbers in float32 are more than the machine can hold."""
    need, here = 4 * n_numbers / 2**30, psutil.virtual_memory().total / 2**30
    if need > here:
        raise ValueError(f"{what} would need {need:.3g} GiB of memory, of {here:.3g} GiB here")


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to be chosen."""
    return isinstance(value, str) and value == "auto"


def check_choice(name: str, value: Any, valid: Collection[str]) -> None:
    """Raise a ValueError unless the value is one of the valid strings."""
    if not isinstance(value, str) or value not in valid:
        raise ValueError(f"{name} must be one of {sorted(valid)}, got {value!r}")


def check_bool(name: str, value: Any) -> bool:
    """The value; a ValueError unless it is True or False, NumPy's among them."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_positive(estimator: Any, *names: str, least: int = 1, auto: bool = False) -> None:
    """Raise unless these parameters are integers of at least so much, or "auto" where valid."""
    for name in names:
        check_integer(name, getattr(estimator, name), least, auto=auto)


def check_integer(name: str, value: Any, least: int = 1, auto: bool = False) -> None:
    """Raise unless a value is an integer, no bool, of at least so much, or "auto" where valid."""
    check_kind(name, value, Integral, auto)
    if not is_auto(value):
        check_scalar(value, name, Integral, min_val=least)


def check_kind(name: str, value: Any, kind: Any, auto: bool = False) -> None:
    """Raise a TypeError unless a value is of a type, or "auto" where valid; a bool is no number."""
    right = isinstance(value, kind) and not (isinstance(value, bool) and issubclass(kind, Real))
    if not (right or (auto and is_auto(value))):
        valid = {Integral: "int", Real: "float"}.get(kind, kind.__name__) + ' or "auto"' * auto
        text = repr(value)
        got = text if len(text) <= 100 else f"a {type(value).__name__}"
        raise TypeError(f"{name} must be an instance of {valid}, got {got}")


def check_finite(estimator: Any, *names: str, zero: bool = True, auto: bool = False) -> None:
    """Raise unless these are finite numbers above 0, or 0 or "auto" where that is valid."""
    for name in names:
        check_number(name, getattr(estimator, name), zero=zero, auto=auto)


def check_number(name: str, value: Any, *, zero: bool = True, auto: bool = False) -> None:
    """Raise unless a value is a finite number above 0, or 0 or "auto" where that is valid."""
    check_kind(name, value, Real, auto)
    # Written so that NaN, which compares to nothing, is refused.
    if not (is_auto(value) or 0 < value < math.inf or (zero and value == 0)):
        least = ">= 0" if zero else "> 0"
        raise ValueError(f"{name} must be a finite number {least}, got {value!r}")


def finite_array(name: str, values: Any) -> np.ndarray:
    """The values as float64; an error where one is NaN or infinite."""
    with add_error_context(name):
        array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; every value must be finite")
    return array


def check_widths(value: Any) -> tuple[int, ...]:
    """Widths of hidden layers from a number or a sequence; raise unless they are positive."""
    sizes = np.atleast_1d(np.asarray(value, dtype=object))
    whole = [isinstance(n, int | np.integer) and not isinstance(n, bool) for n in sizes.flat]
    if sizes.ndim != 1 or not all(whole) or (sizes <= 0).any():
        raise ValueError(f"hidden_layer_sizes must be positive integers, got {value!r}")
    return tuple(int(size) for size in sizes)


def _sizes(X: Any) -> np.ndarray:
    """Root mean square of each number of an example over some rows of X (n, ...)."""
    rows = X[:: -(-X.shape[0] // _ROWS_LOOKED_AT)].astype(np.float64)
    squares = rows.multiply(rows) if issparse(rows) else np.square(rows)
    return np.sqrt(np.asarray(squares.mean(axis=0))).ravel()


def _about(size: float) -> str:
    return f"{float(f'{size:.1g}'):g}"


def warn_if_unscaled(X: Any, names: Any = None) -> None:
    """Say so where numbers of an X (n, ...) are large for a network, or rows short."""
    sizes = _sizes(X)
    if (size := sizes[worst := int(sizes.argmax())]) > _LARGE:
        name = worst if names is None else names[worst]
        where = f"column {name!r}" if X.ndim == 2 else "it"
        found = f"{where} holds values of about {_about(size)}"
    elif 0 < (length := math.hypot(*sizes)) < _SHORT:
        found = f"its rows have lengths of about {_about(length)}"
    else:
        return
    hint = "a network learns from standardised columns, or values from 0 to 1"
    warn_user(f"X is not scaled: {found}; {hint}")


def warn_if_scaled_otherwise(X: Any, further: Collection[Any]) -> None:
    """Say so where further rows are on another scale than X."""
    size, *others = (float(np.sqrt(np.square(_sizes(rows)).mean())) for rows in (X, *further))
    if wrong := [own for own in others if max(own, size) > _APART * min(own, size)]:
        said = (
            f"X_unlabelled holds values of about {_about(wrong[0])}, and X of about {_about(size)}:"
            ' the steps of a Pipeline transform it too with transform_input=["X_unlabelled"]'
        )
        warn_user(said)


# Values beyond float32 and infinities of both signs are told by errors, not by warnings of NumPy.
@np.errstate(over="ignore", invalid="ignore")
def examples_checked(
    estimator: Any,
    X: Any,
    y: Any = "no_validation",
    *,
    reset: bool,
    shape: tuple[int, ...] | None = None,
    **checks: Any,
) -> tuple[Any, ...]:
    """Rows (n, ...) of any shape and number type, as scikit-learn checks flat ones; y too."""
    X = array_of(X)
    flat = (X if hasattr(X, "ndim") else np.asarray(X)).ndim <= 2
    checked = validate_data(estimator, X, y, reset=reset, allow_nd=True, ensure_2d=flat, **checks)
    found, *labels = checked if isinstance(checked, tuple) else (checked,)
    if reset and not flat:
        estimator.n_features_in_ = math.prod(found.shape[1:])
    if shape is not None and found.shape[1:] != shape:
        raise ValueError(f"X has examples of shape {found.shape[1:]}, fit saw shape {shape}")
    return found, *labels
