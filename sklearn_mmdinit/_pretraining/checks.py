"""Checks of an initializer's parameters: errors that name the parameter and its value."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from sklearn.utils import check_scalar

__all__ = ["check_choice", "check_finite", "check_positive"]


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
