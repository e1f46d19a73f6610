"""The state of a training between two steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    # Means of the terms over each epoch or window of steps, and the step at which it ended.
    history: list[dict[str, float]] = field(default_factory=list)
    unrecorded: list[float] = field(default_factory=list)  # steps since then, and sums of the terms
    levels: list[float] = field(default_factory=list)  # of windows: means of the last term, L_coh
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

    def add(self, totals: np.ndarray, names: Sequence[str]) -> None:
        """Add a number of steps and the sums of their terms; with the names, record their means."""
        n, *sums = totals + np.array(self.unrecorded or [0.0] * len(totals))
        self.unrecorded = [] if names else [n, *sums]
        if names:
            means = (float(total / n) for total in sums)
            self.history.append({"step": self.step, **dict(zip(names, means, strict=True))})

    def end_window(self, totals: np.ndarray, size: int, current: Theta0, moments: Moments) -> None:
        """Keep what training continues from. A shorter window is best only if it is the first."""
        n, loss, level = totals[[0, 1, -1]]
        self.current, self.moments = current, moments
        self.levels.append(float(level / n))
        if loss / n < self.best_loss and (n == size or self.best is None):
            self.best, self.best_loss = current, float(loss / n)

    def fall_back(self, n_dropped: int, learning_rate: float) -> None:
        """Drop the last steps, take the weights of the best window; an error without one."""
        message = (
            "Pre-training stopped: the loss or the weights became NaN or infinite after step "
            f"{self.step - n_dropped}; look for NaN in the data and in what an augmentation "
            f"returns, try a smaller learning_rate_init than {learning_rate}, or standardize X"
        )
        if self.best is None:
            raise ValueError(message)
        warn_user(f"{message}. The weights of the best window are kept", ConvergenceWarning)
        self.step -= n_dropped
        self.current = self.best

    def copied(self) -> State:
        """A copy that does not change when training goes on with the original."""
        return replace(self, history=[*self.history], levels=[*self.levels])
