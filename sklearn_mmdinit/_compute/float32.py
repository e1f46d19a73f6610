"""Numbers in float32, in which everything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["array_of", "as_float32", "check_float32"]


def array_of(X: Any) -> Any:
    """A tensor as an array; bfloat16, which NumPy has not, as float32. Anything else as it is."""
    if not isinstance(X, torch.Tensor):
        return X
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def check_float32(X: Any, name: str = "X") -> None:
    """Raise a ValueError where a finite value of X is too large for float32.

    Parameters
    ----------
    X : ndarray or sparse array
        Numbers of any kind, NaN aside.
    name : str, default="X"
        What the error calls it.
    """
    if X.dtype == np.float32 or 0 in X.shape:
        return
    # Two passes without a temporary array: X may be a memory map larger than memory.
    for extreme in (X.min(), X.max()):
        with np.errstate(over="ignore"):
            fits = np.isfinite(np.float32(extreme)) or not np.isfinite(extreme)
        if not fits:
            raise ValueError(
                f"{name} holds {float(extreme)!r}, a value too large for float32, whose largest is "
                f"{float(np.finfo(np.float32).max):.4g}; scale {name}"
            )


def as_float32(X: Any) -> Any:
    """X in float32; X itself where it is.

    Parameters
    ----------
    X : ndarray or sparse array
        Numbers of any kind, NaN aside.

    Returns
    -------
    ndarray or sparse array of float32
        With the values of X, rounded.

    Raises
    ------
    ValueError
        If one is too large.
    """
    check_float32(X)
    return X.astype(np.float32, copy=False)
