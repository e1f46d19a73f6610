"""The state of a training between two steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._base.validation import warn_user
from ..theta0 import Theta0
from .config import Config


@dataclass
class State:
    """All that the next step needs to know of the steps before it: NumPy arrays and numbers."""

    seed: int
    current: Theta0
    # Adam's moments, by the parameters' names.
    moments: dict[str, list[np.ndarray]] = field(default_factory=dict)
    step: int = 0
    n_epochs: int = 0  # epochs that have ended
    steps_in_epoch: int = 0  # steps of the epoch that has not
    # Number of steps of an epoch, as far as known; 0 before training, and infinite while the first
    # pass over a stream without a length has not ended.
    steps_an_epoch: float = 0.0
    fell_at: int = sys.maxsize  # the first step with a lower learning rate; large if there is none
    # Means of the terms over each window of steps, and the step at which it ended.
    history: list[dict[str, float]] = field(default_factory=list)
    first_loss: float = math.inf  # of the first mini-batch, before its step
    best: Theta0 | None = None
    best_loss: float = math.inf

    # What changes it, in the order of a training

    def begin_step(self, config: Config, n_planned: float) -> float:
        """The next step's learning rate; records the step at which the rate falls."""
        factor = rate_factor(self.step / n_planned) if config.coherence else 1.0
        if factor < 1.0:
            self.fell_at = min(self.fell_at, self.step)
        return factor * config.learning_rate_init

    def end_step(self, ends_epoch: bool) -> None:
        """Count a step, which may be the last one of its epoch."""
        self.step += 1
        self.steps_in_epoch = 0 if ends_epoch else self.steps_in_epoch + 1
        self.n_epochs += ends_epoch

    def end_window(
        self,
        means: Mapping[str, float],
        current: Theta0,
        moments: dict[str, list[np.ndarray]],
        is_whole: bool,
    ) -> None:
        """Record the means over a window; only a whole window may be the best one."""
        self.history.append({"step": self.step, **means})
        self.current, self.moments = current, moments
        if is_whole and means["loss"] < self.best_loss:
            self.best, self.best_loss = current, means["loss"]

    def fall_back(self, config: Config, n_steps: int) -> None:
        """Take the weights of the best window, drop the last steps; an error if there is none."""
        message = (
            f"the loss or the weights are not finite between steps {self.step - n_steps} and "
            f"{self.step}, and pre-training stops there; try a smaller learning_rate_init than "
            f"{config.learning_rate_init}, or standardize X"
        )
        if self.best is None:
            raise ValueError(message)
        warn_user(message, ConvergenceWarning)
        self.step, self.steps_in_epoch = self.step - n_steps, 0
        self.current = self.best

    # How long the training is

    def n_steps_planned(self, config: Config) -> float:
        """Number of steps of the whole training, as far as is known now."""
        if config.ends_by_coherence:
            assert config.coherence is not None
            limits = config.fewest_steps, config.most_steps, config.coherence.separation
            return planned_steps(self.levels, config.window, *limits)
        return config.max_iter * self.steps_an_epoch

    def is_over(self, config: Config, n_planned: float) -> bool:
        """Whether training is over, by the planned steps or by the number of epochs."""
        if config.ends_by_coherence:
            return self.step >= n_planned
        return self.n_epochs >= config.max_iter

    @property
    def levels(self) -> list[float]:
        """Means of L_coh over the windows."""
        return [record["coherence"] for record in self.history if "coherence" in record]

    def levels_before_the_fall(self, config: Config) -> list[float]:
        """Means of L_coh over the windows before the rate fell; empty if it has not fallen yet."""
        return self.levels[: self.fell_at // config.window] if self.step > self.fell_at else []

    # What it gives

    def copied(self) -> State:
        """A copy that does not change when training goes on with the original."""
        return replace(self, history=list(self.history))

    def result(self, config: Config) -> Theta0:
        """Theta0 after the best window; the current one with coherence or if no window ended."""
        return self.current if self.best is None or config.coherence else self.best


# The learning rate of a training with coherence, and the number of its steps
#
# The rate is constant over the first two thirds of the training. Over the last third it falls to 2
# % along a half cosine. With ``max_iter="auto"`` the number of steps is not fixed in advance: the
# rate begins to fall when L_coh has stopped falling. If L_coh is low by then, rows form clusters,
# and a longer training is better: the rate stays constant for as many steps again. While L_coh is
# as high as for predictions that hardly depend on the row, the rate does not begin to fall.

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
    1 - 1 / (4 rho), if C = 1 / (2 rho) for any two rows, the lowest value without regard to the
    data. The limit is halfway between the two, and at most 1. Below rho = 1 they are too near to
    be distinguished: the limit is that of 1.
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
