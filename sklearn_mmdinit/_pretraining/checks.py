"""Checks of an initializer's parameters: errors that name the parameter and its value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .._network import ACTIVATIONS, scales_freely

__all__ = ["check_choice", "check_finite", "check_gain", "check_positive", "is_auto"]


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


def check_gain(gain: Any, hidden_layer_sizes: Any, activation: str, batch_norm: bool) -> None:
    """Raise unless a gain is "auto", or positive numbers that the network can have."""
    if is_auto(gain):
        return
    n_hidden = len(np.atleast_1d(np.asarray(hidden_layer_sizes, dtype=object)))
    factors = np.asarray(gain, dtype=object)
    numbers = [float(f) for f in factors.flat if isinstance(f, Real) and not isinstance(f, bool)]
    right = len(numbers) == factors.size and factors.shape in ((), (n_hidden,))
    if not (right and all(0 < factor < math.inf for factor in numbers)):
        raise ValueError(
            f'gain must be "auto", a finite number > 0, or one for each of the {n_hidden} hidden '
            f"layers, got {gain!r}"
        )
    changes = any(factor != 1 for factor in numbers)
    if changes and not scales_freely(activation, batch_norm):
        valid = sorted(name for name in ACTIVATIONS if scales_freely(name, False))
        raise ValueError(
            f"gain={gain!r} would change the function of a network with activation="
            f"{activation!r} and batch_norm={batch_norm}; it needs an activation of {valid} and "
            "batch_norm=False"
        )
