"""Calls of a function in processes of this machine, each with one thread."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import torch
from threadpoolctl import threadpool_limits


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Let PyTorch and NumPy use so many threads for a while."""
    before = torch.get_num_threads()
    with threadpool_limits(n):
        torch.set_num_threads(n)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _in_one_thread(function: Callable[..., Any], *args: Any) -> Any:
    with threads(1), joblib.parallel_config(backend="sequential"):
        return function(*args)


def results(
    jobs: int, function: Callable[..., Any], calls: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """Yield what a function of an importable module returns for each call, as the calls end.

    ``jobs`` are counted as joblib does; one job is this process.
    """
    parallel = joblib.Parallel(jobs, return_as="generator_unordered", batch_size=1)
    return iter(parallel(joblib.delayed(_in_one_thread)(function, *args) for args in calls))
