"""What every engine does: take calls, and hand out their results as they are ready."""

from __future__ import annotations

import argparse
import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import joblib

from engines.threads import threads


class EngineUnavailableError(RuntimeError):
    """A cluster that cannot be reached, or cannot be used as it is; the message says why."""


class EngineLostError(RuntimeError):
    """A cluster that was there and is gone. What had come back by then is not lost."""


@dataclass(frozen=True)
class Call:
    """What one cell is computed from: ``function(*args, *shared)``.

    An engine brings each object of ``shared``, which many calls have in common by identity, to
    each of its workers once and not once for each call.
    """

    args: tuple[Any, ...]
    shared: tuple[Any, ...] = ()


def one_by_one(function: Callable[..., Any], calls: Iterable[Call]) -> Iterator[Any]:
    """The results of calls made in this process, one after the other."""
    for call in calls:
        yield function(*call.args, *call.shared)


def work(
    function: Callable[..., Any],
    n_threads: int,
    open_shared: Callable[[Any], Any] | None,
    args: tuple[Any, ...],
    *shared: Any,
) -> Any:
    """One call in a worker of a cluster, with so many threads.

    What the call itself hands to joblib stays here: dask's and ray's own workers would send a
    ``cross_val_score`` without ``n_jobs``, data and all, back to the cluster.
    """
    with threads(n_threads), joblib.parallel_config(backend="sequential"):
        opened = shared if open_shared is None else map(open_shared, shared)
        return function(*args, *opened)


class Engine(AbstractContextManager["Engine"]):
    """A way to compute cells; its workers are there while it is entered.

    To enter it raises an EngineUnavailableError where they cannot be had.
    """

    @property
    @abstractmethod
    def in_process(self) -> bool:
        """Whether calls that take a whole machine run in this process, one after the other."""

    @abstractmethod
    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        """What a function of an importable module returns for each call, in the order they end.

        A call has one thread, and there are as many at a time as there are cores; or it has all
        the cores of its machine, as a pre-training does. It raises its own errors, and an
        EngineLostError if the cluster is lost on the way.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What results say of where they come from, as JSON can hold it."""


class Loky(Engine):
    """Processes of joblib's own on this machine, each with one thread; of one, this process."""

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


# Where the engines of other packages are, which are extras of the same names.
CLUSTERS = {"dask": ("engines.dask_cluster", "Dask"), "ray": ("engines.ray_cluster", "Ray")}
ENGINES = ("loky", *CLUSTERS)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add where the cells are to be computed."""
    parser.add_argument(
        "--backend",
        choices=ENGINES,
        default="loky",
        help="loky: processes on this machine; dask, ray: a cluster; default: loky",
    )
    parser.add_argument(
        "--address",
        help="of the scheduler of a running cluster, such as tcp://HOST:8786 (dask) or HOST:6379 "
        "(ray); default: a cluster of this machine's own, with one worker for each of --jobs",
    )


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """The engine of a name, not yet entered; ``jobs``, as joblib counts, where no address is."""
    n_jobs = joblib.effective_n_jobs(jobs)
    if name not in CLUSTERS:
        if address is not None:
            raise ValueError(
                f"--address {address}: {name} has this machine's processes alone; an address is "
                f"for --backend {' or '.join(CLUSTERS)}"
            )
        return Loky(n_jobs)
    module, cluster = CLUSTERS[name]
    try:
        made: Engine = getattr(importlib.import_module(module), cluster)(address, n_jobs)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--backend {name} needs the package {error.name}, which is not installed: "
            f"pip install 'sklearn-mmdinit[{name}]'"
        ) from error
    return made
