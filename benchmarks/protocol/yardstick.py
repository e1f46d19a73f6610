"""One loss to measure every theta0 with, however it was learned.

The loss a setting minimises has its own number of perturbed networks and its own noise. Here each
theta0 gets the paper's loss (K = 256) on the same rows with the same perturbations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from protocol.budget_settings import METHOD
from protocol.methods import NetworkSettings, initializer_of
from protocol.pretrained import data_digest, fit_key, theta0_digest
from protocol.store import ScoreLog, digest_of
from sklearn_mmdinit import Theta0
from sklearn_mmdinit.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio

__all__ = ["Yardstick"]

N_BATCHES = 32


class Yardstick:
    """The paper's loss and its two ratios, on a fixed sample of rows, looked up where known.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Rows, in a random order; the first 1,024 are used, or what whole mini-batches there are.
    network : NetworkSettings
        Widths and device.
    random_state : int
        Of the perturbations.
    log : ScoreLog
        Where measurements are looked up and kept.
    """

    def __init__(
        self, X: np.ndarray, network: NetworkSettings, *, random_state: int, log: ScoreLog
    ) -> None:
        self.random_state = random_state
        self.log = log
        scorer = initializer_of(METHOD, network, random_state=random_state)
        assert scorer is not None  # METHOD is one that pre-trains
        # No pass: a fitted initializer whose theta0 is the fresh weights, to be exchanged.
        self.scorer: Any = scorer.set_params(max_iter=0)
        self.X = X[: N_BATCHES * self.scorer.batch_size]
        self.key = digest_of([fit_key(self.scorer, data_digest(self.X)), N_BATCHES])
        self.scorer.fit(self.X)

    def measure(self, theta0: Theta0) -> dict[str, Any]:
        """The loss, the degenerate-softmax ratio and the dead neurons of each hidden layer."""
        key = digest_of([self.key, theta0_digest(theta0)])
        known = self.log.read().get(key)
        if known is None:
            known = {"key": key, **self._measure(theta0)}
            self.log.append(known)
        return {name: value for name, value in known.items() if name != "key"}

    def _measure(self, theta0: Theta0) -> dict[str, Any]:
        self.scorer.theta0_ = theta0
        options = {"n_batches": N_BATCHES, "random_state": self.random_state}
        dead = dead_neuron_ratio(self.scorer, self.X, **options).mean(axis=0)
        return {
            "loss": -self.scorer.score(self.X),
            "degenerate_softmax": float(
                degenerate_softmax_ratio(self.scorer, self.X, **options).mean()
            ),
            "dead_neurons": dead.tolist(),
        }
