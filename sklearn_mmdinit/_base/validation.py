"""Checks of parameters and rows; helpers of all estimators for errors and warnings."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.preprocessing import normalize
from sklearn.utils import column_or_1d, gen_batches

# Private in scikit-learn, which is why no other file imports it.
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    make_constraint,
    validate_parameter_constraints,
)
from sklearn.utils.validation import check_consistent_length, validate_data

from .environment import array_of

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
def add_error_context(context: str, about: str = "") -> Iterator[None]:
    """Add a note to an error, if `about` matches its message; its type and message stay."""
    try:
        yield
    except Exception as error:
        if re.search(about, str(error)):
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


@contextmanager
def cast_to_float32() -> Iterator[None]:
    """Raise an error if a value of X that is cast in this block is too large for float32."""
    too_large = "X holds a value that is too large for float32"
    with np.errstate(over="raise"), add_error_context(too_large, "overflow encountered in cast"):
        yield


def not_finite(what: str) -> ValueError:
    """The error for numbers computed from X that are not finite."""
    return ValueError(f"{what} not finite: values of X are too large; standardize X")


# Parameters: constraints are those of scikit-learn's `_parameter_constraints`


class _Numbers(Interval):
    """An interval that excludes True and False."""

    def is_satisfied_by(self, val: Any) -> bool:
        return not isinstance(val, bool) and bool(super().is_satisfied_by(val))


def integers(least: int, most: int | None = None) -> Interval:
    """The integers from `least` to `most`; without `most`, all larger ones."""
    return _Numbers(Integral, least, most, closed="left" if most is None else "both")


def numbers(least: float, most: float | None = None, closed: str = "left") -> Interval:
    """The numbers from `least` to `most`; without `most`, all finite ones."""
    return _Numbers(Real, least, most, closed=closed)


def one_of(options: Collection[str]) -> StrOptions:
    """One of these strings."""
    return StrOptions(dict.fromkeys(options).keys())  # in their order, for messages


AUTO, POSITIVE = one_of(["auto"]), numbers(0, closed="neither")


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


def check_widths(value: Any) -> tuple[int, ...]:
    """Widths of hidden layers, from a positive integer or a sequence of them."""
    sizes = np.atleast_1d(np.asarray(value, dtype=object))
    if sizes.ndim != 1 or not all(integers(1).is_satisfied_by(size) for size in sizes):
        got = shortened(repr(value))
        raise ValueError(f"hidden_layer_sizes must be positive integers, got {got}")
    return tuple(int(size) for size in sizes)


# Rows

_ROWS_JUDGED = 1000
# Columns with a larger root mean square need far smaller weights than the usual initial ones.
# Standardized columns have 1, pixels from 0 to 16 at most 13.
_LARGE = 20.0


def warn_if_unscaled(X: Any, names: Any = None) -> None:
    """Warn if a column of X (n, ...), dense or sparse, is too large for a network."""
    rows = X[:: -(-X.shape[0] // _ROWS_JUDGED)].astype(np.float64)
    squares = rows.multiply(rows) if issparse(rows) else np.square(rows)
    sizes = np.sqrt(np.asarray(squares.mean(axis=0))).ravel()
    column, size = int(sizes.argmax()), float(sizes.max())
    if size > _LARGE:
        where = f"column {column if names is None else names[column]!r}" if X.ndim == 2 else "it"
        warn_user(
            f"X is not scaled: {where} holds values of about {float(f'{size:.1g}'):g}; a network "
            "learns from values of about 1: standardize columns, or divide bytes of images by 255"
        )


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

    `shape` is the shape of the examples in ``fit``. With `allow_nd` they may have any shape.
    `options` are those of ``validate_data``.
    """
    one_shape = (
        "pad examples to one shape; if a column of X holds vectors, pass np.stack(X['name'])"
    )
    about = "array element with a sequence|more than one element|equal size"
    with add_error_context(one_shape, about):
        X = array_of(X)
        flat = not allow_nd or (X if hasattr(X, "ndim") else np.asarray(X)).ndim <= 2
        options |= {"reset": reset, "allow_nd": allow_nd, "ensure_2d": flat}
        checked = validate_data(estimator, X, y, dtype="numeric", **options)
    X, *labels = checked if isinstance(checked, tuple) else (checked,)
    if X.dtype.kind not in "biuf":
        raise TypeError(
            f"X must hold numbers, got dtype {X.dtype}; encode or drop the other columns"
        )
    if reset and not flat:
        estimator.n_features_in_ = math.prod(X.shape[1:])
    if shape is not None and X.shape[1:] != shape:
        raise ValueError(f"X has examples of shape {X.shape[1:]}, fit saw shape {shape}")
    return X, *labels


# Labels that an initializer counts


LABELS = str | Real | np.bool_  # types of known labels


def missing_in(y: np.ndarray) -> np.ndarray:
    """Which labels (n,) are NaN, None or pandas' NA, bool (n,)."""
    missing = [label is None or type(label).__name__ == "NAType" or label != label for label in y]
    return np.array(missing, dtype=bool)


def n_classes_in(y: Any, X: Any) -> int | None:
    """Number of classes in labels y of rows X, without -1, NaN and None; None if it is below 2."""
    if y is None:
        return None
    labels = np.asarray(array_of(y), dtype=object)
    check_consistent_length(X, labels)
    if labels.ndim > 1 and labels.shape[1] != 1:
        return None
    labels = column_or_1d(labels, dtype=object, warn=True)
    known = labels[~missing_in(labels)].tolist()
    if any(not isinstance(v, LABELS) or (isinstance(v, Real) and v % 1 != 0) for v in known):
        return None  # targets of a regression
    n_classes = len(set(known) - {-1, "-1"})
    return n_classes if n_classes >= 2 else None


# The scale of X

_NUMBERS_AT_A_TIME = 1 << 20  # float64 numbers of a block: 8 MiB
_ROWS_MEASURED, _ROWS_COMPARED = 20_000, 256
# With fewer rows, or fewer values in them, a difference may be chance.
_FEWEST_ROWS, _FEWEST_NUMBERS = 5, 100
# Limits of the ratios that `warn_if_another_scale` computes. Pixels from 0 to 1 have less than 1/9
# of the variance of standardized ones.
_FAR, _LEAST_DISTANCE, _LEAST_WIDTH = 5.0, 1 / 2, 1 / 8


def _blocks(X: Any) -> Iterator[np.ndarray]:
    """Yield rows X (n, ...), dense or sparse, in blocks (n_rows, n_columns) of float64."""
    n_numbers = max(math.prod(X.shape[1:]), 1)
    for rows in gen_batches(X.shape[0], max(_NUMBERS_AT_A_TIME // n_numbers, 1)):
        block = X[rows].toarray() if issparse(X) else X[rows]
        yield np.asarray(block, dtype=np.float64).reshape(len(block), -1)


def unit_rows(X: np.ndarray) -> np.ndarray:
    """Rows X (n, p), each scaled to unit norm, in float32; a row of zeros stays."""
    X = X.astype(np.promote_types(X.dtype, np.float32), copy=False)
    # First divided, exactly, by a power of 2 near the largest entry, so that squares neither
    # overflow nor vanish.
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True, initial=0.0))
    return np.asarray(normalize(np.ldexp(X, -exponents)), dtype=np.float32)


def mean_and_variance(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances of columns of a sample of X (n, ...); a variance below rounding is 0."""
    X = X[:: -(-X.shape[0] // _ROWS_MEASURED)]
    n, shift, sums, squares = X.shape[0], None, 0.0, 0.0
    for block in _blocks(X):
        shift = block.mean(axis=0) if shift is None else shift  # keeps the squares small
        sums = sums + (block - shift).sum(axis=0)
        squares = squares + np.square(block - shift).sum(axis=0)
    mean = shift + sums / n
    variance = squares / n - np.square(sums / n)
    rounding = np.square(n * np.finfo(np.float64).eps * mean)
    return mean, np.where(variance <= rounding, 0.0, variance)


@np.errstate(over="ignore", invalid="ignore")  # values too large for float32 raise elsewhere
def warn_if_another_scale(X: Any, mean: np.ndarray | None, spread: np.ndarray | None) -> None:
    """Warn if rows X (n, ...) are on another scale than those that a theta0 was learned from.

    `mean` and `spread` are the means and standard deviations of the learned rows. Each ratio below
    is about 1 if both scales agree. Columns that did not vary among the learned rows are left out.
    """
    if mean is None or spread is None or X.shape[1:] != mean.shape:
        return
    X = X[:: -(-X.shape[0] // _ROWS_COMPARED)]
    mean, squares = mean.ravel().astype(np.float64), np.square(spread.ravel().astype(np.float64))
    if X.shape[0] < _FEWEST_ROWS or not squares.any():
        return
    # Squared distances from the mean, as multiples of their mean over the learned rows. A median
    # ignores the few rows that lie far away because they have a rare category.
    distances = [np.square(block - mean)[:, squares > 0].sum(axis=1) for block in _blocks(X)]
    far = float(np.median(np.concatenate(distances)) / squares.sum())
    if far > _FAR:
        how = f"are {math.sqrt(far):.2g} times too far from the pre-training mean"
    else:
        # Columns that do not vary in X are left out too: a rare category may be missing there.
        n, (means, variances) = X.shape[0], mean_and_variance(X)
        varies = (squares > 0) & (variances > 0)
        if n * varies.sum() < _FEWEST_NUMBERS:
            return
        variance, total = variances[varies].sum(), squares[varies].sum()
        # Rows of a single cluster have little variance too, but lie away from the mean.
        distance = (variance + np.square(means - mean)[varies].sum()) / total
        width = float(variance / total * n / (n - 1))
        if distance >= _LEAST_DISTANCE or width >= _LEAST_WIDTH:
            return
        how = f"vary {math.sqrt(width):.1g} times as much as the pre-training examples"
    warn_user(
        "X is on another scale than the pre-training examples, so the learned weights help "
        f"little: examples of X {how}. Fit the preprocessing once, and apply it to both: for "
        "example, the same StandardScaler before the initializer and the classifier"
    )
