"""How long to pre-train, and in what portions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """How long and in what portions to train.

    Parameters
    ----------
    learning_rate : float
        Of Adam, with its usual (0.9, 0.999) and no weight decay.
    batch_size : int
        Rows a step; at most the rows there are.
    window : int
        Steps over which the loss is averaged.
    tol : float or None
        Smallest improvement of the window mean that counts; None: never stop early.
    n_iter_no_change : int
        Windows without such an improvement after which to stop.
    """

    learning_rate: float
    batch_size: int
    window: int
    tol: float | None
    n_iter_no_change: int
