"""Times that may be compared: taken in turns, in one process, on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

__all__ = ["in_turns", "ratio", "synchronize", "timed"]


def synchronize(device: str | torch.device = "cpu") -> None:
    """Wait for what a GPU still has to do; a CPU has nothing left."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def timed(action: Callable[[], Any], device: str | torch.device = "cpu") -> float:
    """Seconds that an action takes."""
    synchronize(device)
    start = time.perf_counter()
    action()
    synchronize(device)
    return time.perf_counter() - start


def in_turns(measures: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, Any]:
    """Take each measure once a round, so that a slow minute of the machine meets all of them.

    Parameters
    ----------
    measures : mapping of str to callable
        Each returns the seconds of what it measures; warm it up before.
    repetitions : int
        Rounds.

    Returns
    -------
    dict
        For each name a dict with "median", "minimum" and all "seconds" in order.
    """
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repetitions):
        for name, measure in measures.items():
            seconds[name].append(measure())
    return {
        name: {"median": float(np.median(taken)), "minimum": min(taken), "seconds": taken}
        for name, taken in seconds.items()
    }


def ratio(times: Mapping[str, Any], above: str, below: str) -> dict[str, float]:
    """Ratio of two measures taken in turns: the median over rounds, and that of the minima.

    The rounds' own ratios are compared and not the medians, for what slows a machine down
    slows both members of a round.
    """
    pairs = zip(times[above]["seconds"], times[below]["seconds"], strict=True)
    return {
        "median": float(np.median([a / b for a, b in pairs])),
        "of_minima": times[above]["minimum"] / times[below]["minimum"],
    }
