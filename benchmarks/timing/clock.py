"""Times that may be compared: taken in turns, in one run, on one machine."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch


def timed(action: Callable[[], Any], device: str | torch.device = "cpu") -> float:
    """Seconds that an action takes, a GPU's outstanding work included."""
    wait: Callable[[], None] = lambda: None  # noqa: E731
    if torch.device(device).type == "cuda":
        wait = torch.cuda.synchronize
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def in_turns(measures: Mapping[str, Callable[[], float]], repetitions: int) -> dict[str, Any]:
    """Median, minimum and all seconds: a slow minute of the machine meets every measure."""
    seconds: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repetitions):
        for name, measure in measures.items():
            seconds[name].append(measure())
    return {
        name: {"median": float(np.median(taken)), "minimum": min(taken), "seconds": taken}
        for name, taken in seconds.items()
    }
