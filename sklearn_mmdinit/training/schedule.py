"""The learning rate of a training with coherence, and the number of its steps.

The rate is constant over the first two thirds of the training. Over the last third it falls to 2 %
along a half cosine. With ``max_iter="auto"`` the number of steps is not fixed in advance: the rate
begins to fall when L_coh has stopped falling. If L_coh is low by then, rows form clusters, and a
longer training is better: the rate stays constant for as many steps again. While L_coh is as high
as for predictions that hardly depend on the row, the rate does not begin to fall.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# L_coh has stopped falling when a mean is less than 3 % below the one before it.
_LEAST_FALL = 0.03
# If L_coh is at most this, rows form clusters.
_CLUSTERED = 0.4
# Share of a training over which the rate is constant.
CONSTANT_SHARE = 2 / 3
# Factor of the rate at the end. It is not 0, so that epochs beyond the planned ones still learn.
_LAST_FACTOR = 0.02


def rate_factor(done: float) -> float:
    """Factor of the learning rate, after the share `done` of the planned steps."""
    fallen = min(max(done - CONSTANT_SHARE, 0.0) / (1.0 - CONSTANT_SHARE), 1.0)
    return _LAST_FACTOR + (1.0 - _LAST_FACTOR) * 0.5 * (1.0 + math.cos(math.pi * fallen))


def is_still_falling(levels: Sequence[float]) -> bool:
    """Whether the last mean of L_coh is clearly below the one before; True for a single mean."""
    return len(levels) < 2 or levels[-1] < (1.0 - _LEAST_FALL) * levels[-2]


def has_converged(levels: Sequence[float], separation: float) -> bool:
    """Whether L_coh has stopped falling, and predictions depend on the row.

    L_coh is rho, the separation, if the predictions for all rows move together (C = 1), and
    1 - 1 / (4 rho) if C = 1 / (2 rho) for any two rows, which asks nothing of the data. The limit
    is halfway between the two, and at most 1. Below rho = 1 they are too near to be distinguished:
    the limit is that of 1.
    """
    rho = max(separation, 1.0)
    limit = min((rho + 1.0 - 1.0 / (4.0 * rho)) / 2.0, 1.0)
    return not is_still_falling(levels) and levels[-1] < limit


def planned_steps(
    levels: Sequence[float], window: int, fewest: int, most: int, separation: float
) -> int:
    """The planned total of steps, by the means of L_coh over each window of steps so far.

    It is `most` until L_coh has converged.
    """
    for n in range(2, len(levels) + 1):
        n_windows = 2 * n if levels[n - 1] <= _CLUSTERED else n
        total = round(n_windows * window / CONSTANT_SHARE)
        if total >= fewest and has_converged(levels[:n], separation):
            return min(total, most)
    return most
