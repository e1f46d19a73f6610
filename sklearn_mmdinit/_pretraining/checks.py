"""Checks of an initializer's parameters: errors that name the parameter and its value."""

from __future__ import annotations

import math
from itertools import accumulate
from numbers import Integral, Real
from operator import mul
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .._network import ACTIVATIONS, INITS, scales_freely

__all__ = [
    "check_choice",
    "check_common",
    "check_factors",
    "check_finite",
    "check_gain",
    "check_positive",
    "is_auto",
]

_TINY = float(np.finfo(np.float32).tiny)


def check_choice(name: str, value: Any, valid: Any) -> None:
    """Raise a ValueError unless the value is one of the valid strings."""
    if not isinstance(value, str) or value not in valid:
        raise ValueError(f"{name} must be one of {sorted(valid)}, got {value!r}")


def check_positive(estimator: Any, *names: str) -> None:
    """Raise unless these parameters are integers of at least 1."""
    for name in names:
        check_scalar(getattr(estimator, name), name, Integral, min_val=1)


def check_finite(estimator: Any, *names: str, zero: bool = True) -> None:
    """Raise unless these parameters are finite numbers above 0, or 0 where that is valid."""
    for name in names:
        value = getattr(estimator, name)
        check_scalar(value, name, Real)
        # Written so that NaN, which compares to nothing, is refused.
        if not (0 < value < math.inf or (zero and value == 0)):
            raise ValueError(
                f"{name} must be a finite number {'>= 0' if zero else '> 0'}, got {value!r}"
            )


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to be chosen."""
    return isinstance(value, str) and value == "auto"


def _is_width(size: Any) -> bool:
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool | np.bool_)
    return whole and size >= 1


def check_common(estimator: Any) -> None:
    """Raise an error that names the first parameter, of those that all have, that is not valid."""
    sizes = np.atleast_1d(np.asarray(estimator.hidden_layer_sizes, dtype=object))
    if not all(_is_width(size) for size in sizes):
        raise ValueError(
            f"hidden_layer_sizes must be positive integers, got {estimator.hidden_layer_sizes!r}"
        )
    check_scalar(estimator.n_classes, "n_classes", Integral, min_val=2)
    check_choice("activation", estimator.activation, ACTIVATIONS)
    check_choice("init", estimator.init, INITS)
    if not isinstance(estimator.batch_norm, bool | np.bool_):
        raise ValueError(f"batch_norm must be True or False, got {estimator.batch_norm!r}")
    check_positive(estimator, "batch_size", "window", "n_iter_no_change")
    if estimator.batch_norm and estimator.batch_size < 2:
        raise ValueError("batch_norm=True needs a batch_size of at least 2, got 1")
    check_scalar(estimator.max_iter, "max_iter", Integral, min_val=0)
    check_scalar(estimator.verbose, "verbose", Integral)
    check_finite(estimator, "learning_rate_init", zero=False)
    if estimator.tol is not None:
        check_finite(estimator, "tol")


def check_factors(gain: Any, n_hidden: int) -> bool:
    """Raise unless a gain is positive numbers for so many layers; whether it changes a weight.

    Biases get the products of the factors so far, and the last layer's weights the inverse.
    """
    factors = np.asarray(gain, dtype=object)
    numbers = [float(f) for f in factors.flat if isinstance(f, Real) and not isinstance(f, bool)]
    right = len(numbers) == factors.size and factors.shape in ((), (n_hidden,))
    if not (right and all(0 < factor < math.inf for factor in numbers)):
        raise ValueError(
            f'gain must be "auto", a finite number > 0, or one for each of the {n_hidden} hidden '
            f"layers, got {gain!r}"
        )
    of_layers = numbers if factors.shape else numbers * n_hidden
    scales = [*of_layers, *accumulate(of_layers, mul)]
    if not all(_TINY <= scale <= 1 / _TINY for scale in scales):
        raise ValueError(
            f"gain={gain!r} and its products over the {n_hidden} hidden layers must be from "
            f"{_TINY:.2g} to {1 / _TINY:.2g}, so that float32 holds them and their inverses"
        )
    return any(factor != 1 for factor in numbers)


def check_gain(gain: Any, hidden_layer_sizes: Any, activation: str, batch_norm: bool) -> None:
    """Raise unless a gain is "auto", or positive numbers that the network can have."""
    if is_auto(gain):
        return
    n_hidden = len(np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)))
    changes = check_factors(gain, n_hidden)
    if changes and not scales_freely(activation, batch_norm):
        valid = sorted(name for name in ACTIVATIONS if scales_freely(name, False))
        raise ValueError(
            f"gain={gain!r} would change the function of a network with activation="
            f"{activation!r} and batch_norm={batch_norm}; it needs an activation of {valid} and "
            "batch_norm=False"
        )
