"""Seconds a pre-training step, measured apart from any learning, on a machine at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from protocol.checkpoints import warm_up
from sklearn.base import BaseEstimator, clone

__all__ = ["seconds_a_step"]

ROUNDS = 3


def seconds_a_step(
    initializers: Mapping[str, BaseEstimator],
    X: np.ndarray,
    n_steps: int,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Median over three rounds, each of which times every initializer once.

    The rounds are interleaved, so that a machine that slows down does not slow down one alone.

    Returns
    -------
    dict
        By name, ``seconds_a_step`` and the ``rounds`` it is the median of.
    """
    rounds: dict[str, list[float]] = {name: [] for name in initializers}
    for number in range(ROUNDS):
        for name, initializer in initializers.items():
            say(f"timing {name}, round {number + 1} of {ROUNDS}")
            batch_size = min(initializer.get_params()["batch_size"], len(X))
            steps = min(n_steps, len(X) // batch_size)
            warm_up(initializer, X)
            fresh: Any = clone(initializer).set_params(verbose=0)
            started = time.perf_counter()
            fresh.partial_fit(X[: steps * batch_size])
            rounds[name].append((time.perf_counter() - started) / steps)
    return {
        name: {"seconds_a_step": float(np.median(seconds)), "rounds": seconds}
        for name, seconds in rounds.items()
    }
