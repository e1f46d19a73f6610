"""The state of a training between two steps."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._base.validation import warn_user
from ..theta0 import Theta0
from . import Config
from .schedule import SPAN, planned_steps, rate_factor


@dataclass
class State:
    """All that the next step needs to know of the steps before it: NumPy arrays and numbers."""

    seed: int
    current: Theta0
    # Adam's moments, by the parameters' names.
    moments: dict[str, list[np.ndarray]] = field(default_factory=dict)
    step: int = 0
    # The step at which Adam began; above 0 if training went back to the best window.
    moments_since: int = 0
    n_epochs: int = 0  # epochs begun
    steps_in_epoch: int = 0  # steps of the last of them; 0 if it has ended
    # Number of steps of an epoch, as far as known; 0 before training, and infinite while the first
    # pass over a stream without a length has not ended.
    steps_an_epoch: float = 0.0
    # max_iter when training began: the schedule of the learning rate is for so many epochs.
    n_planned_epochs: int = 1
    fell_at: int = sys.maxsize  # the first step with a lower learning rate; large if there is none
    # Mean of L_coh over each span of steps; sum and number of steps of the unfinished span.
    levels: list[float] = field(default_factory=list)
    level_sum: float = 0.0
    level_steps: int = 0
    # Sums of the terms over the steps of the unfinished window, and the number of these steps.
    window_sum: np.ndarray | None = None
    window_steps: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    first_loss: float = math.inf  # of the first mini-batch, before its step
    best: Theta0 | None = None
    best_loss: float = math.inf

    # What changes it, in the order of a training

    def begin_epoch(self) -> None:
        """Count a new epoch if the last one has ended."""
        self.n_epochs += self.steps_in_epoch == 0

    def begin_step(self, config: Config, n_planned: float) -> float:
        """The next step's factor of the learning rate; records the step at which it falls."""
        factor = rate_factor(self.step / n_planned) if config.coherence else 1.0
        if factor < 1.0:
            self.fell_at = min(self.fell_at, self.step)
        return factor

    def end_step(self, ends_epoch: bool) -> None:
        """Count a step, which may be the last one of its epoch."""
        self.step += 1
        self.steps_in_epoch = 0 if ends_epoch else self.steps_in_epoch + 1

    def add(self, totals: np.ndarray, n_steps: int, config: Config) -> None:
        """Add sums of the terms (n_terms,) over the last steps to the window and the span."""
        self.window_sum = totals + (0.0 if self.window_sum is None else self.window_sum)
        self.window_steps += n_steps
        if config.coherence:
            self.level_sum += float(totals[-1])
            self.level_steps += n_steps
            if self.step % SPAN == 0:
                self.levels.append(self.level_sum / self.level_steps)
                self.level_sum, self.level_steps = 0.0, 0

    def end_window(self, names: tuple[str, ...]) -> dict[str, float]:
        """Record the means of the terms over the window, and return them by name."""
        means = self._window_means(names)
        self.history.append({"step": self.step, **means})
        self.window_sum, self.window_steps = None, 0
        return means

    def _window_means(self, names: tuple[str, ...]) -> dict[str, float]:
        assert self.window_sum is not None
        means = (self.window_sum / self.window_steps).tolist()
        return dict(zip(names, means, strict=True))

    def fall_back(self, config: Config, n_steps: int) -> None:
        """Undo the last steps: go back to the best window, or raise an error if there is none."""
        message = (
            f"the loss or the weights are not finite between steps {self.step - n_steps} and "
            f"{self.step}, and pre-training stops there; try a smaller learning_rate_init than "
            f"{config.learning_rate_init}, or standardize X"
        )
        if self.best is None:
            raise ValueError(message)
        warn_user(message, ConvergenceWarning)
        self.step, self.steps_in_epoch = self.step - n_steps, 0
        self.current, self.moments, self.moments_since = self.best, {}, self.step
        self.window_sum, self.window_steps = None, 0

    # How long the training is

    @property
    def n_ended(self) -> int:
        """Epochs that have ended."""
        return self.n_epochs - (self.steps_in_epoch > 0)

    def n_steps_planned(self, config: Config) -> float:
        """Number of steps of the whole training, as far as is known now."""
        if config.ends_by_coherence:
            assert config.coherence is not None
            limits = config.fewest_steps, config.most_steps, config.coherence.separation
            return planned_steps(self.levels, *limits)
        return self.n_planned_epochs * self.steps_an_epoch

    def n_steps_left(self, config: Config, last_epoch: int | None) -> float:
        """Steps until epoch `last_epoch` ends; if it is None, until the planned ones are done.

        The number is 0 or less only when this training is over. Before, it may be an estimate,
        because epochs of a stream may differ in length.
        """
        if last_epoch is None:
            return self.n_steps_planned(config) - self.step
        n_epochs = last_epoch - self.n_ended
        return max(n_epochs * self.steps_an_epoch - self.steps_in_epoch, 1) if n_epochs > 0 else 0

    def levels_before_the_fall(self) -> list[float]:
        """Means of L_coh over the spans before the rate fell; empty if it has not fallen yet."""
        return self.levels[: self.fell_at // SPAN] if self.step > self.fell_at else []

    # What it gives

    def copied(self) -> State:
        """A copy that does not change when training goes on with the original."""
        return replace(self, history=list(self.history), levels=list(self.levels))

    def records(self, names: tuple[str, ...]) -> list[dict[str, float]]:
        """A record of each window, also of the last one if it has not ended."""
        records = [dict(record) for record in self.history]
        if self.window_sum is not None:
            records.append({"step": self.step, **self._window_means(names)})
        return records

    def result(self, config: Config) -> Theta0:
        """Theta0 after the best window; the current one with coherence or if no window ended."""
        return self.current if self.best is None or config.coherence else self.best
