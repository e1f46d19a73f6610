"""What parameters of images must be."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from sklearn.utils import check_scalar

__all__ = ["check_amounts"]


def check_amounts(estimator: Any, *names: str) -> None:
    """Raise an error unless these parameters are finite numbers that are not negative."""
    for name in names:
        value = getattr(estimator, name)
        check_scalar(value, name, Real, min_val=0)
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
