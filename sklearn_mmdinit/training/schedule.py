"""The learning rate of a coherent training, and when it has learned long enough.

The rate is constant until the rate *falls* to 2 % along a half cosine over the last third. By
``max_iter="auto"`` the fall begins when L_coh has stopped falling, or after as many steps again
where its level says that rows cluster: there longer is better. So nobody has to know the length
before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Steps over which L_coh is averaged before two means are compared.
SPAN = 50
# L_coh has stopped falling when a mean is less than 3 % below the one before it.
_LEAST_FALL = 0.03
# At a level up to this rows cluster.
_CLUSTERED = 0.4
# Share of a training over which the rate is constant.
CONSTANT_SHARE = 2 / 3
# Share of the rate at the end: not 0, so that epochs beyond the last planned one still learn.
_LEFT = 0.02


def rate_factor(done: float) -> float:
    """Share of the learning rate after a share of the training."""
    fallen = min(max(done - CONSTANT_SHARE, 0.0) / (1.0 - CONSTANT_SHARE), 1.0)
    return _LEFT + (1.0 - _LEFT) * 0.5 * (1.0 + math.cos(math.pi * fallen))


def is_still_falling(levels: Sequence[float]) -> bool:
    """Whether the last of the means of L_coh is clearly below the one before; True if unknown."""
    return len(levels) < 2 or levels[-1] < (1.0 - _LEAST_FALL) * levels[-2]


def planned_steps(levels: Sequence[float], fewest: int, most: int) -> int:
    """Steps in all, where these are the means of L_coh so far: `most` while it may still fall."""
    for n in range(2, len(levels) + 1):
        n_spans = 2 * n if levels[n - 1] <= _CLUSTERED else n
        total = round(n_spans * SPAN / CONSTANT_SHARE)
        if total >= fewest and not is_still_falling(levels[:n]):
            return min(total, most)
    return most
