"""The state of a training between two steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._base.validation import warn_user
from ..theta0 import Theta0

# Adam's two moments of each parameter, by its name.
Moments = dict[str, list[np.ndarray]]


@dataclass
class State:
    """All that the next step needs to know of the steps before it: NumPy arrays and numbers."""

    seed: int
    current: Theta0
    moments: Moments = field(default_factory=dict)
    step: int = 0
    n_epochs: int = 0  # epochs that have ended
    steps_in_epoch: int = 0  # steps of the unfinished epoch
    steps_an_epoch: int = 0  # of the last epoch, or an estimate; 0: not known
    # Means of the terms over each window of steps, and the step at which it ended.
    history: list[dict[str, float]] = field(default_factory=list)
    first_loss: float = math.inf  # of the first mini-batch, before its step
    best: Theta0 | None = None
    best_loss: float = math.inf
    is_stopped: bool = False  # by a callback

    def end_step(self, ends_epoch: bool) -> None:
        """Count a step, which may be the last one of its epoch."""
        self.step, self.steps_in_epoch = self.step + 1, self.steps_in_epoch + 1
        if ends_epoch:
            self.steps_an_epoch, self.steps_in_epoch = self.steps_in_epoch, 0
            self.n_epochs += 1

    def end_window(
        self, means: Mapping[str, float], current: Theta0, moments: Moments, is_whole: bool
    ) -> None:
        """Record the means over a window; only a whole window may be the best one."""
        self.history.append({"step": self.step, **means})
        self.current, self.moments = current, moments
        if is_whole and means["loss"] < self.best_loss:
            self.best, self.best_loss = current, means["loss"]

    def fall_back(self, n_dropped: int, learning_rate: float) -> None:
        """Drop the last steps, take the weights of the best window; an error without one."""
        message = (
            "Pre-training stopped: the loss or the weights became NaN or infinite after step "
            f"{self.step - n_dropped}; look for NaN in the data and what an augmentation returns, "
            f"try a smaller learning_rate_init than {learning_rate}, or standardize X"
        )
        if self.best is None:
            raise ValueError(message)
        warn_user(f"{message}. The weights of the best window are kept", ConvergenceWarning)
        self.step -= n_dropped
        self.n_epochs, self.steps_in_epoch = divmod(self.step, self.steps_an_epoch or self.step + 1)
        self.current = self.best

    @property
    def levels(self) -> list[float]:
        """Means of L_coh over the windows."""
        return [record["coherence"] for record in self.history if "coherence" in record]

    def copied(self) -> State:
        """A copy that does not change when training goes on with the original."""
        return replace(self, history=list(self.history))
