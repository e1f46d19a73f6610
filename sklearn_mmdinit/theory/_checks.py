"""The check of numbers that every theorem shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray[Any, Any]


def finite(name: str, values: ArrayLike) -> Array:
    """The values as float64; ValueError where one is NaN or infinite."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinity; every value must be finite")
    return array
