"""What the steps of a tour share: the digits, which of them have labels, and what was learned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import MaxAbsScaler

__all__ = ["Claims", "Journey", "say"]

Claims = dict[str, bool]
"""What a step says, in words, and whether it is so."""

N_LABELS = 50


def say(line: str) -> None:
    print(f"  {line}", flush=True)


@dataclass
class Journey:
    """The state of a tour.

    Parameters
    ----------
    folder : Path
        Where pictures and files go.
    quick : bool
        Whether to take few rows and a few steps of everything, which shows that it runs.
    """

    folder: Path
    quick: bool = False
    learned: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        raw, y = load_digits(return_X_y=True)
        n = 300 if self.quick else len(raw)
        self.raw, self.y = raw[:n], y[:n]
        # Fitted once on all rows, none of whose labels it looks at.
        self.scaler = MaxAbsScaler().fit(self.raw)
        self.X = self.scaler.transform(self.raw).astype(np.float32)
        self.images = (self.X - 0.3).reshape(n, 1, 8, 8)
        (split,) = self.splits(N_LABELS, 1)
        self.few, self.rest = split

    def splits(self, n_labels: int, n_draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Draws of so many rows with labels, and all others."""
        draw = StratifiedShuffleSplit(n_draws, train_size=n_labels, random_state=0)
        return list(draw.split(self.raw, self.y))

    def amount(self, whole: int, quick: int) -> int:
        """A number of passes, draws or networks."""
        return quick if self.quick else whole

    def save(self, name: str, display: Any) -> Path:
        """Write the picture of a display that is drawn, and close it."""
        from matplotlib import pyplot

        path = self.folder / name
        display.figure_.savefig(path, dpi=120, bbox_inches="tight")
        pyplot.close(display.figure_)
        say(f"{name} drawn")
        return path
