"""Checks of parameters and rows; helpers of all estimators for errors and warnings."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
import psutil
from scipy.sparse import issparse, vstack
from sklearn.utils import gen_batches

# Private in scikit-learn, which is why no other file imports it.
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    make_constraint,
    validate_parameter_constraints,
)
from sklearn.utils.validation import validate_data

from .environment import array_of, check_float32

P = ParamSpec("P")
R = TypeVar("R")


# Errors and warnings

# Packages whose frames lie between the user's line and ours.
_NOT_OF_THE_USER = {"sklearn_mmdinit", "sklearn", "skorch", "joblib", "torch", "contextlib"}


def all_or_nothing(method: Callable[P, R]) -> Callable[P, R]:
    """Restore the attributes of a method's estimator if it raises or is interrupted."""

    @wraps(method)
    def restoring(*args: P.args, **kwargs: P.kwargs) -> R:
        attributes = vars(args[0])
        before = dict(attributes)
        try:
            return method(*args, **kwargs)
        except BaseException:
            attributes.clear()
            attributes.update(before)
            raise

    return restoring


@contextmanager
def add_error_context(context: str) -> Iterator[None]:
    """Add a note that says where an error comes from; its type and message stay."""
    try:
        yield
    except Exception as error:
        error.add_note(context)
        raise


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's code that called us."""
    frame, level = sys._getframe(1), 2
    while (
        frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_OF_THE_USER
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def shortened(text: str, most: int = 300) -> str:
    """A text for a message; a long one is cut."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def repr_without_address(value: Any) -> str:
    """The repr of a value, without addresses in memory, which differ between processes."""
    return re.sub(" at 0x[0-9a-fA-F]+", "", repr(value))


def check_fits_in_memory(n_numbers: float, what: str) -> None:
    """Raise a ValueError if the machine cannot hold so many float32 numbers."""
    need, here = 4 * n_numbers / 2**30, psutil.virtual_memory().total / 2**30
    if need > here:
        raise ValueError(f"{what} would need {need:.3g} GiB of memory; this machine has {here:.3g}")


# Parameters: constraints are those of scikit-learn's `_parameter_constraints`


class _Numbers(Interval):
    """An interval that excludes True and False."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))


def integers(least: int) -> Interval:
    """The integers from `least` on."""
    return _Numbers(Integral, least, None, closed="left")


def numbers(least: float, most: float | None = None, closed: str = "left") -> Interval:
    """The numbers from `least` to `most`; without `most`, all finite ones."""
    return _Numbers(Real, least, most, closed=closed)


AUTO, POSITIVE = StrOptions({"auto"}), numbers(0, closed="neither")


def one_of(options: Collection[str]) -> StrOptions:
    """One of these strings."""
    return StrOptions(dict.fromkeys(options).keys())  # in their order, for messages


def has_methods(*names: str) -> HasMethods:
    """An object that has these methods."""
    return HasMethods([*names])


def check_parameters(estimator: Any) -> None:
    """Raise an error that names the first parameter outside ``_parameter_constraints``."""
    constraints = estimator._parameter_constraints
    values = {name: getattr(estimator, name) for name in constraints}
    validate_parameter_constraints(constraints, values, type(estimator).__name__)


def check_argument(name: str, value: Any, *constraints: Any) -> None:
    """Raise an error that names the argument unless its value satisfies a constraint."""
    checks = [make_constraint(constraint) for constraint in constraints]
    if not any(check.is_satisfied_by(value) for check in checks):
        valid, text = " or ".join(map(str, checks)), repr(value)
        shown = text if len(text) <= 100 else f"a {type(value).__name__}"
        raise InvalidParameterError(f"{name} must be {valid}, got {shown}")


def is_auto(value: Any) -> bool:
    """Whether a parameter is "auto"."""
    return isinstance(value, str) and value == "auto"


_MOST_LAYERS = 1000  # making so many takes a second or two


def check_widths(value: Any) -> tuple[int, ...]:
    """Widths of hidden layers, from a positive integer or a sequence of them."""
    sizes = np.atleast_1d(np.asarray(value, dtype=object))
    if sizes.ndim != 1 or not all(integers(1).is_satisfied_by(size) for size in sizes):
        got = shortened(repr(value))
        raise ValueError(f"hidden_layer_sizes must be positive integers, got {got}")
    if len(sizes) > _MOST_LAYERS:
        raise ValueError(
            f"hidden_layer_sizes may list at most {_MOST_LAYERS:,} layers, got {len(sizes):,}"
        )
    return tuple(int(size) for size in sizes)


def finite_array(name: str, values: Any) -> np.ndarray:
    """The values in float64; a ValueError if one is NaN, infinite or not a number."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; every value must be finite")
    return array


# Rows

_N_ROWS_SAMPLED = 1000  # for judging scales
# Columns with a larger root mean square need far smaller weights than the usual initial ones.
# Standardized columns have 1, pixels from 0 to 16 at most 13.
_LARGE = 20.0
# Rows of a smaller length need far larger weights. Pixels that were divided by 255 twice have a
# length of 0.04.
_SHORT = 0.1
# Rows have one length if the relative difference is at most _SAME_LENGTH. Their values are too
# small if the root mean square is below _SMALL. With few rows, equal lengths may be chance.
_SMALL, _FEWEST_OF_ONE_LENGTH, _SAME_LENGTH = 0.2, 10, 1e-3
# X and X_unlabelled may differ in scale by this factor.
_LARGEST_RATIO = 3.0


def _root_mean_squares(X: Any) -> np.ndarray:
    """Root mean square of each column of X (n, ...), over a sample of its rows."""
    rows = X[:: -(-X.shape[0] // _N_ROWS_SAMPLED)].astype(np.float64)
    squares = rows.multiply(rows) if issparse(rows) else np.square(rows)
    return np.sqrt(np.asarray(squares.mean(axis=0))).ravel()


def are_equal(lengths: np.ndarray) -> bool:
    """Whether lengths of rows (n,) are equal, up to a relative difference from rounding."""
    return bool(np.ptp(lengths) <= _SAME_LENGTH * lengths.max())


def _have_one_length(X: Any) -> bool:
    """Whether dense rows X (n, p) have the same length, as embeddings of an encoder have."""
    if issparse(X) or X.ndim != 2 or len(X) < _FEWEST_OF_ONE_LENGTH:
        return False
    rows = X[:_N_ROWS_SAMPLED].astype(np.float64)
    # Rows of categories in one-hot columns have one length too, but most of their values are 0.
    mostly_values = np.count_nonzero(rows) > rows.size / 2
    return bool(mostly_values) and are_equal(np.linalg.norm(rows, axis=1))


def _about(size: float) -> str:
    return f"about {float(f'{size:.1g}'):g}"


def warn_if_unscaled(X: Any, names: Any = None) -> None:
    """Warn if a column of X (n, ...) is too large for a network, or its rows are too short."""
    sizes = _root_mean_squares(X)
    hint = "a network learns from standardized columns, or values from 0 to 1"
    if (size := sizes[column := int(sizes.argmax())]) > _LARGE:
        where = f"column {column if names is None else names[column]!r}" if X.ndim == 2 else "it"
        reason = f"{where} holds values of {_about(size)}"
    elif 0 < (length := math.hypot(*sizes)) < _SHORT:
        reason = f"its rows have lengths of {_about(length)}"
    elif _have_one_length(X) and length < _SMALL * math.sqrt(len(sizes)):
        reason = f"all its rows have a length of {_about(length)}, so that its values are small"
        factor = math.sqrt(len(sizes)) / length
        hint = f"multiply it by {factor:.3g}, here and for the classifier"
    else:
        return
    warn_user(f"X is not scaled: {reason}; {hint}")


def warn_if_scaled_otherwise(X: Any, unlabelled: Collection[Any]) -> None:
    """Warn if arrays of unlabelled rows have another scale than X."""
    for rows in unlabelled:
        sizes = [float(np.sqrt(np.square(_root_mean_squares(A)).mean())) for A in (X, rows)]
        if max(sizes) > _LARGEST_RATIO * min(sizes):
            warn_user(
                f"X_unlabelled holds values of {_about(sizes[1])}, and X of {_about(sizes[0])}: "
                "apply the same preprocessing to both; a Pipeline does so with "
                'transform_input=["X_unlabelled"]'
            )
            return


def _as_numbers(X: np.ndarray, names: Any = None) -> np.ndarray:
    """Objects or texts (n, ...) as float64; an error names the first that is no finite number."""
    if X.dtype.kind not in "mM":
        with suppress(TypeError, ValueError, OverflowError):
            numbers = X.astype(np.float64)
            if np.isfinite(numbers).all():
                return numbers
    for place, value in np.ndenumerate(X):
        if (error := _why_no_number(value)) is not None:
            name = place[1] if names is None else names[place[1]]
            raise type(error)(
                f"X must hold finite numbers, and column {name!r} holds {shortened(repr(value))}: "
                f"leave the column out, or encode it, for example by OrdinalEncoder ({error})"
            )
    raise TypeError(f"X must hold numbers, got an array of dtype {X.dtype}")


def _why_no_number(value: Any) -> ValueError | TypeError | None:
    """The error that says why a value is no finite number; None if it is one."""
    try:
        if isinstance(value, np.datetime64 | np.timedelta64) or not math.isfinite(float(value)):
            return ValueError("it is not finite, or it is a date or time")
    except (ValueError, TypeError) as error:
        return type(error)(shortened(str(error)))
    except OverflowError:
        return ValueError("it is too large")
    return None


def _not_finite(X: Any) -> Iterator[tuple[int, ...]]:
    """The indices of values of dense X (n, ...) that are no finite numbers."""
    X = np.zeros(0) if issparse(X) else np.asarray(X)
    if X.ndim < 2:
        return
    if X.dtype.kind == "f":
        for rows in gen_batches(len(X), _N_ROWS_SAMPLED):  # X may be a memory map
            for row, *at in np.argwhere(~np.isfinite(X[rows])).tolist():
                yield rows.start + row, *at
    elif X.dtype.kind == "O":
        yield from (at for at, value in np.ndenumerate(X) if _why_no_number(value) is not None)


def joined(parts: Sequence[Any]) -> Any:
    """Rows of several arrays, dense or CSR."""
    return vstack(parts, format="csr") if any(map(issparse, parts)) else np.concatenate(parts)


# Our errors report infinity and values too large for float32, so NumPy does not warn of them.
@np.errstate(over="ignore", invalid="ignore")
def examples_checked(
    estimator: Any,
    X: Any,
    y: Any = "no_validation",
    *,
    reset: bool,
    shape: tuple[int, ...] | None = None,
    allow_nd: bool = True,
    **options: Any,
) -> tuple[Any, ...]:
    """Check rows X (n, ...) and, if given, y by ``validate_data``.

    Raises an error if a value of X is too large for float32.
    `shape` is the shape of the examples in ``fit``. With `allow_nd` they may have any shape.
    `options` are those of ``validate_data``.
    """
    X = array_of(X)
    with add_error_context(
        "X must be one array of examples of the same shape. If it is a list of pairs (example, "
        "label), pass torch.stack([example for example, label in pairs])"
    ):
        flat = not allow_nd or (X if hasattr(X, "ndim") else np.asarray(X)).ndim <= 2
    options |= {"reset": reset, "allow_nd": allow_nd, "ensure_2d": flat}
    try:
        # Not dtype="numeric", which judges columns by their types, not by their values.
        checked = validate_data(estimator, X, y, dtype=None, **options)
    except ValueError as error:
        if (place := next(_not_finite(X), None)) is not None:
            row, *at = place
            column = X.columns[at[0]] if hasattr(X, "columns") else at[0]
            where = f"column {column!r}" if len(at) == 1 else f"at index {at}"
            error.add_note(
                f"The first value of X that is no finite number is in row {row}, {where}; rows and "
                "columns count from 0"
            )
        raise
    except TypeError:
        if hasattr(X, "columns"):  # the columns may have no common type
            _as_numbers(np.asarray(X, dtype=object), X.columns)
        raise
    X, *labels = checked if isinstance(checked, tuple) else (checked,)
    if X.dtype.kind not in "biuf":
        X = _as_numbers(X, getattr(estimator, "feature_names_in_", None))
    if reset and not flat:
        estimator.n_features_in_ = math.prod(X.shape[1:])
    if shape is not None and X.shape[1:] != shape:
        raise ValueError(f"X has examples of shape {X.shape[1:]}, fit saw shape {shape}")
    check_float32(X)
    return X, *labels
