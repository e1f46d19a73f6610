"""The cores of this machine, by joblib's own processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import joblib

from engines.engine import Call, Engine, one_by_one

__all__ = ["Loky"]


class Loky(Engine):
    """Processes of joblib's own, each with one thread.

    Parameters
    ----------
    n_jobs : int
        How many; one computes everything in this process.
    """

    in_process = True

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs = n_jobs

    def __exit__(self, *exception: object) -> None:
        """Leave joblib's processes: it ends them itself, and other calls may use them."""

    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        if whole_machine:  # which is this one
            yield from one_by_one(function, calls)
            return
        # One thread a worker: also what makes a result the same for every number of jobs above
        # one. What is shared needs no care: joblib maps large arrays into every worker's memory.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            # Unordered: a result must be kept when it is ready, not when its turn comes.
            parallel = joblib.Parallel(self.n_jobs, return_as="generator_unordered")
        yield from parallel(joblib.delayed(function)(*call.args, *call.shared) for call in calls)

    def describe(self) -> dict[str, Any]:
        return {"name": "loky", "jobs": self.n_jobs}
