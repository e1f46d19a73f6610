"""When a training ends, and its learning rate until then.

With coherence the learning rate is constant over the first two thirds of the training. Over the
last third it falls to 2 % along a half cosine. Without coherence it is constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .state import State

# L_coh if features are constant, or if all are orthogonal.
_WITHOUT_LEARNING = 1.0
# L_coh has stopped falling when a mean is less than 3 % below the one before it.
_LEAST_FALL = 0.03
# If L_coh is at most this, rows form clusters, and a longer training is better.
_CLUSTERED = 0.5
# Share of a training over which the rate is constant.
_CONSTANT_SHARE = 2 / 3
# Factor of the rate at the end. It is not 0, so that epochs beyond the planned ones still learn.
_LAST_FACTOR = 0.02


@dataclass(frozen=True)
class ByEpochs:
    """Training ends after `max_iter` epochs."""

    max_iter: int

    def n_steps(self, state: State) -> int:
        """Steps of the whole training, by the length of the last epoch."""
        return self.max_iter * state.steps_an_epoch

    def is_over(self, state: State, n_steps: int) -> bool:
        """Whether the training has ended; `n_steps` is not needed, as epochs may differ."""
        return state.n_epochs >= self.max_iter


@dataclass(frozen=True)
class ByCoherence:
    """When L_coh has stopped falling, the rate falls, and then the training ends.

    At a low L_coh the rate first stays constant for as many steps again.
    """

    fewest: int  # steps
    most: int
    window: int  # steps over which L_coh is averaged

    def n_steps(self, state: State) -> int:
        """Steps of the whole training: `most` until L_coh has stopped falling."""
        levels = state.levels
        for n in range(2, len(levels) + 1):
            n_windows = 2 * n if levels[n - 1] <= _CLUSTERED else n  # of constant rate
            total = round(n_windows * self.window / _CONSTANT_SHARE)
            if total >= self.fewest and has_converged(levels[:n]):
                return min(total, self.most)
        return self.most

    def is_over(self, state: State, n_steps: int) -> bool:
        """Whether the training has ended, after `n_steps`."""
        return state.step >= n_steps


def rate_factor(step: int, n_steps: int) -> float:
    """Factor of the learning rate with coherence: 1, and over the last third down to 0.02."""
    fallen = min(max(step / n_steps - _CONSTANT_SHARE, 0.0) / (1.0 - _CONSTANT_SHARE), 1.0)
    return _LAST_FACTOR + (1.0 - _LAST_FACTOR) * 0.5 * (1.0 + math.cos(math.pi * fallen))


def levels_before_the_fall(state: State, n_steps: int, window: int) -> list[float]:
    """Means of L_coh before the rate fell, in a training of `n_steps`; empty if it has not."""
    fell_at = int(_CONSTANT_SHARE * n_steps) + 1
    return state.levels[: fell_at // window] if state.step > fell_at else []


def is_still_falling(levels: Sequence[float]) -> bool:
    """Whether the last mean of L_coh is clearly below the one before; True for a single mean."""
    return len(levels) < 2 or levels[-1] < (1.0 - _LEAST_FALL) * levels[-2]


def has_converged(levels: Sequence[float]) -> bool:
    """Whether L_coh has stopped falling, below its value for features that are constant."""
    return not is_still_falling(levels) and levels[-1] < _WITHOUT_LEARNING
