"""Many rows through a network, some at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

__all__ = ["in_portions"]

_ROWS_AT_A_TIME = 1024


def in_portions(function: Callable[[np.ndarray], torch.Tensor], X: np.ndarray) -> np.ndarray:
    """What a function makes of rows X (n, ...), n at least 1: memory does not grow with n.

    Parameters
    ----------
    function : callable
        Takes some of the rows and returns a tensor with one row for each; run without gradients.
    X : ndarray of shape (n, ...)
        Rows.

    Returns
    -------
    ndarray of shape (n, ...)
        On the CPU.
    """
    starts = range(0, len(X), _ROWS_AT_A_TIME)
    with torch.no_grad():
        portions = [function(X[start : start + _ROWS_AT_A_TIME]).cpu().numpy() for start in starts]
    return np.concatenate(portions)
