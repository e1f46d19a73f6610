"""What a pre-training is between two passes: NumPy arrays and numbers.

With draws that depend on (seed, step) alone, a state saved after a pass and continued later
gives the same parameters as a run that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._network import Theta0

__all__ = ["PretrainingState", "network_parameters"]

_OF_THE_NETWORK = (
    "hidden_layer_sizes",
    "n_classes",
    "activation",
    "batch_norm",
    "init",
    "module",
    "hidden_layer",
)


def network_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters of an initializer that its networks are made by, once and for all."""
    parameters = estimator.get_params(deep=False)
    names = _OF_THE_NETWORK
    if parameters.get("module") is not None:
        # Which sampler can serve a module is found out when it is looked at first.
        names = (*names, "sampler", *(n for n in parameters if n.startswith("module__")))
    return {name: parameters[name] for name in names if name in parameters}


@dataclass
class PretrainingState:
    """All that the next pass needs to know of the ones before it."""

    seed: int
    current: Theta0
    moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    step: int = 0
    # The step before which Adam began: not the first where the weights had to go back.
    moments_since: int = 0
    n_passes: int = 0
    window_sum: np.ndarray | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    best: Theta0 | None = None
    best_loss: float = math.inf
    stale_windows: int = 0
    # Steps of the window that has not ended, whose sums are in window_sum.
    window_steps: int = 0
    # What the first pass began with: its loss terms, the passes that it had in view, and the
    # parameters that its networks were made by.
    term_names: tuple[str, ...] = ()
    n_planned: int = 0
    network: Mapping[str, Any] = field(default_factory=dict)
    # What neighbours are searched in: fitted before the first pass; None: the rows themselves.
    embedding: Any = None
    # Class and parameters of what it was fitted from, which no pass may change.
    embedding_settings: Any = None

    def begin(
        self, term_names: tuple[str, ...], n_planned: int, network: Mapping[str, Any]
    ) -> None:
        """Take note of what pre-training begins with, or see that it is still the same.

        Raises
        ------
        ValueError
            If the loss has other terms than the passes before, or the networks other parameters.
        """
        if not self.term_names:
            self.term_names, self.n_planned = term_names, max(n_planned, 1)
            self.network = network
            return
        if self.term_names != term_names:
            raise ValueError(
                f"the loss now has the terms {list(term_names)}, but pre-training began with "
                f"{list(self.term_names)}; begin anew with fit"
            )
        before = self.network
        for name in sorted(network.keys() | before.keys()):
            own: Any = network.get(name)
            first: Any = before.get(name)
            if own is not first and not np.array_equal(own, first):
                raise ValueError(
                    f"{name} is now {own!r}, but pre-training began with {first!r}; begin anew "
                    "with fit"
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
