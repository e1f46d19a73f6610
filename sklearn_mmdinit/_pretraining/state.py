"""What a pre-training is between two passes: NumPy arrays and numbers.

With draws that depend on (seed, step) alone, a state saved after a pass and continued later
gives the same parameters as a run that was never interrupted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._network import Theta0

__all__ = ["PretrainingState"]


@dataclass
class PretrainingState:
    """All that the next pass needs to know of the ones before it."""

    seed: int
    current: Theta0
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    step: int = 0
    n_passes: int = 0
    window_sum: np.ndarray | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    best: Theta0 | None = None
    best_loss: float = math.inf
    stale_windows: int = 0
    # Steps of the window that has not ended, whose sums are in window_sum.
    window_steps: int = 0
    # What the first pass began with: its loss terms, and the passes that it had in view.
    term_names: tuple[str, ...] = ()
    n_planned: int = 0
    # What neighbours are searched in: fitted before the first pass; None: the rows themselves.
    embedding: Any = None
    # Class and parameters of what it was fitted from, which no pass may change.
    embedding_settings: Any = None

    def begin(self, term_names: tuple[str, ...], n_planned: int) -> None:
        """Take note of the terms and the number of passes, or see that the terms are the same.

        Raises
        ------
        ValueError
            If the loss has other terms than the passes before.
        """
        if not self.term_names:
            self.term_names, self.n_planned = term_names, max(n_planned, 1)
        elif self.term_names != term_names:
            raise ValueError(
                f"the loss now has the terms {list(term_names)}, but pre-training began with "
                f"{list(self.term_names)}; begin anew with fit"
            )

    def records(self, names: tuple[str, ...]) -> list[dict[str, float]]:
        """Means of the windows; of the first one alone, even if it has not ended."""
        if self.history or self.window_sum is None:
            return [dict(record) for record in self.history]
        means = (self.window_sum / self.window_steps).tolist()
        return [{"step": self.step, **dict(zip(names, means, strict=True))}]

    def result(self, keep: str = "best") -> Theta0:
        """Parameters at the end of the best window; the current ones before the first ends.

        Or the last ones, with ``keep="last"``.
        """
        return self.current if self.best is None or keep == "last" else self.best
