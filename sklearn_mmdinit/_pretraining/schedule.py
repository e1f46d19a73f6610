"""How long to pre-train, in what portions, and which parameters to keep."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["KEEP", "LEARNING_RATES", "Schedule"]

# Share of the learning rate that is left at the end of a half cosine: not 0, so that passes
# beyond the last one still learn.
_LEFT = 0.02

# From the share of the passes that is done to a share of the learning rate; None: always 1.
LEARNING_RATES: dict[str, Callable[[float], float] | None] = {
    "constant": None,
    "cosine": lambda done: _LEFT + (1.0 - _LEFT) * 0.5 * (1.0 + math.cos(math.pi * done)),
}

KEEP = ("best", "last")


@dataclass(frozen=True)
class Schedule:
    """How long and in what portions to train.

    Parameters
    ----------
    learning_rate_init : float
        Of Adam, with its usual (0.9, 0.999) and no weight decay.
    window : int
        Steps over which the loss is averaged.
    tol : float or None
        Smallest improvement of the window mean that counts; None: never stop early.
    n_iter_no_change : int
        Windows without such an improvement after which to stop.
    learning_rate : {"constant", "cosine"}, default="constant"
        How the learning rate goes on from its initial value.
    keep : {"best", "last"}, default="best"
        Which parameters are the result: those at the end of the window of the lowest loss, or
        those after the last step.
    """

    learning_rate_init: float
    window: int
    tol: float | None
    n_iter_no_change: int
    learning_rate: str = "constant"
    keep: str = "best"

    def rates(
        self, pass_number: int, n_passes: int, steps: range, steps_a_pass: int | None
    ) -> list[float] | None:
        """Learning rates of some steps of a pass; None: no change.

        Parameters
        ----------
        pass_number : int
            From 0.
        n_passes : int
            Passes over which the learning rate falls; beyond them it stays.
        steps : range
            Numbers of the steps, from 0.
        steps_a_pass : int or None
            Steps there are; None: they are not known.

        Raises
        ------
        ValueError
            If it falls, and its end is not known.
        """
        share = LEARNING_RATES[self.learning_rate]
        if share is None:
            return None
        if steps_a_pass is None:
            raise ValueError(
                f"learning_rate={self.learning_rate!r} needs to know the steps of a pass, and the "
                "DataLoader does not say them: use learning_rate='constant'"
            )
        done = ((pass_number + step / steps_a_pass) / n_passes for step in steps)
        return [self.learning_rate_init * share(min(part, 1.0)) for part in done]
