"""Engines take calls and hand out their results as they are ready: loky, or a dask or ray cluster.

Every engine computes the same calls to the same last digit: each one has its number of threads, and
what it hands to joblib itself stays in its worker.
"""

import argparse
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import joblib
import torch
from threadpoolctl import threadpool_limits

# For a scheduler to answer, and for its first worker.
SECONDS_TO_CONNECT = 30

Work = Callable[..., Any]


class EngineError(RuntimeError):
    """A cluster that does not answer, cannot be used as it is, or was lost on the way."""


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


@dataclass(frozen=True)
class Call:
    """What one cell is computed from: ``function(*args, *shared)``.

    An engine brings each object of ``shared``, which many calls have in common by identity, to its
    workers once and not once for each call.
    """

    args: tuple[Any, ...]
    shared: tuple[Any, ...] = ()


def work(function: Work, n_threads: int, args: tuple[Any, ...], *shared: Any) -> Any:
    """One call in a worker of a cluster, which keeps its own calls to itself."""
    with threads(n_threads), joblib.parallel_config(backend="sequential"):
        return function(*args, *shared)


class Engine(AbstractContextManager["Engine"]):
    """A way to compute cells; its workers are there while it is entered.

    ``address`` is that of a running cluster; without one it is this machine's own, with ``n_jobs``
    workers. ``in_process``: whether calls that take a whole machine run in this process.
    """

    in_process = False

    def __init__(self, address: str | None, n_jobs: int) -> None:
        self.address, self.n_jobs = address, n_jobs
        self._shared: dict[int, tuple[Any, Any]] = {}

    @abstractmethod
    def results(
        self, function: Work, calls: Iterable[Call], whole_machine: bool = False
    ) -> Iterator[Any]:
        """What a function of an importable module returns for each call, in the order they end.

        A call has one thread, and there are as many at a time as there are cores; or it has all
        the cores of its machine, as a pre-training does. It raises its own errors, and an
        EngineError if the cluster is lost on the way.
        """

    def _share(self, value: Any, send: Callable[[Any], Any]) -> Any:
        """What stands for an object that each worker, or each machine, is sent once."""
        if id(value) not in self._shared:
            # The value itself too: while it lives no other gets its id.
            self._shared[id(value)] = value, send(value)
        return self._shared[id(value)][1]


class Loky(Engine):
    """Processes of joblib's own on this machine, each with one thread; of one, this process."""

    in_process = True

    def __init__(self, address: str | None, n_jobs: int) -> None:
        if address is not None:
            raise ValueError(f"--address {address} is for --backend dask or ray, and not for loky")
        super().__init__(address, n_jobs)

    def __exit__(self, *exception: object) -> None:
        """Leave joblib's processes: it ends them itself, and other calls may use them."""

    def results(
        self, function: Work, calls: Iterable[Call], whole_machine: bool = False
    ) -> Iterator[Any]:
        if whole_machine:  # which is this one
            yield from (function(*call.args, *call.shared) for call in calls)
            return
        # One thread a worker: also what makes a result the same for every number of jobs above
        # one. What is shared needs no care: joblib maps large arrays into every worker's memory.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            # Unordered: a result must be kept when it is ready, not when its turn comes.
            parallel = joblib.Parallel(self.n_jobs, return_as="generator_unordered")
        yield from parallel(joblib.delayed(function)(*call.args, *call.shared) for call in calls)


class Dask(Engine):
    """Workers of a dask cluster, one thread each."""

    def __init__(self, address: str | None, n_jobs: int) -> None:
        import distributed

        self.distributed = distributed
        super().__init__(address, n_jobs)

    def __enter__(self) -> Self:
        own, target = self.address is None, self.address
        try:
            if own:  # any free port: without one it takes 8787, which may be another cluster's
                target = self.distributed.LocalCluster(
                    n_workers=self.n_jobs, threads_per_worker=1, dashboard_address="127.0.0.1:0"
                )
            connect = self.distributed.Client
            self.client = connect(target, set_as_default=False, timeout=SECONDS_TO_CONNECT)
            # All of a cluster of our own; of another one whoever is there.
            self.client.wait_for_workers(self.n_jobs if own else 1, timeout=SECONDS_TO_CONNECT)
        except (OSError, ValueError) as error:  # a TimeoutError is an OSError
            raise EngineError(f"no dask workers answer at {self.address}: {error}") from error
        # Every two seconds dask's memory manager leaves one copy of shared data that no waiting
        # call needs just then: the next call would send for it, and a dying worker may take it.
        self.managed = self.client.amm.running()
        if self.managed:
            self.client.amm.stop()
        return self

    def __exit__(self, *exception: object) -> None:
        self._shared.clear()
        if self.address is None:
            self.client.shutdown()
        elif self.managed and self.client.status == "running":
            with suppress(OSError):  # a scheduler lost just now is still taken to be running
                self.client.amm.start()
        self.client.close()

    def _placement(self, whole_machine: bool) -> tuple[int, dict[str, Any]]:
        """Threads of a call, and where calls go."""
        machines: dict[str, list[str]] = {}
        for address, n_threads in sorted(self.client.nthreads().items()):
            if n_threads != 1:
                # Calls in one process would share PyTorch's number of threads, and Python's lock.
                raise EngineError(
                    f"the dask worker {address} has {n_threads} threads; start as many workers "
                    "as there are cores: dask worker --nworkers -1 --nthreads 1"
                )
            host = self.distributed.comm.get_address_host(address)
            machines.setdefault(host, []).append(address)
        if not whole_machine:
            return 1, {}
        # As many threads everywhere: their number changes results at rounding level.
        fewest = min(map(len, machines.values()), default=1)
        n_threads = torch.get_num_threads() if self.address is None else fewest
        # One worker of each machine; where it dies, its call may go to any other.
        first = [workers[0] for workers in machines.values()]
        return n_threads, {"workers": first, "allow_other_workers": True}

    def _send(self, value: Any) -> Any:
        return self.client.scatter([value], broadcast=True, hash=False)[0]

    def results(
        self, function: Work, calls: Iterable[Call], whole_machine: bool = False
    ) -> Iterator[Any]:
        n_threads, where = self._placement(whole_machine)
        # A call that waits for its machine may be stolen by an idle worker of the same one.
        at_once = len(where["workers"]) if where else None
        waiting, futures = iter(calls), []

        def submit(call: Call) -> Any:
            shared = (self._share(value, self._send) for value in call.shared)
            args = (work, function, n_threads, call.args, *shared)
            futures.append(self.client.submit(*args, pure=False, **where))
            return futures[-1]

        try:
            sent = [submit(call) for call in islice(waiting, at_once)]
            done = self.distributed.as_completed(sent, loop=self.client.loop)
            for future in done:
                done.update([submit(call) for call in islice(waiting, 1)])
                yield future.result()
        except (CancelledError, self.distributed.comm.CommClosedError) as error:
            # The reason is a word like "scheduler-connection-lost".
            reason = getattr(error, "reason", error)
            raise EngineError(f"the dask cluster is lost: {reason}") from error
        finally:
            self.client.cancel(futures)


class Ray(Engine):
    """Workers of a ray cluster; this process has to run on one of its machines."""

    def __init__(self, address: str | None, n_jobs: int) -> None:
        # Read as ray is imported: a benchmark tells nobody that it runs.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray = ray
        super().__init__(address, n_jobs)

    def __enter__(self) -> Self:
        own = {"address": "local", "num_cpus": self.n_jobs, "include_dashboard": False}
        where = own if self.address is None else {"address": self.address}
        try:
            self.ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"no ray head answers at {self.address}: {error}") from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._shared.clear()
        self.ray.shutdown()

    def results(
        self, function: Work, calls: Iterable[Call], whole_machine: bool = False
    ) -> Iterator[Any]:
        cores = [int(node["Resources"].get("CPU", 0)) for node in self.ray.nodes() if node["Alive"]]
        # As many threads everywhere: their number changes results at rounding level.
        n_threads = min(filter(None, cores), default=1) if whole_machine else 1
        # A worker that dies is replaced, and its call made again.
        remote = self.ray.remote(num_cpus=n_threads, max_retries=-1)(work)
        waiting = []
        for call in calls:
            shared = (self._share(value, self.ray.put) for value in call.shared)
            waiting.append(remote.remote(function, n_threads, call.args, *shared))
        while waiting:
            (ready,), waiting = self.ray.wait(waiting)
            try:
                yield self.ray.get(ready)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self.ray.exceptions.RayError as error:
                raise EngineError(f"the ray cluster is lost: {error}") from error


ENGINES: dict[str, Callable[[str | None, int], Engine]] = {"loky": Loky, "dask": Dask, "ray": Ray}


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    where = "processes of this machine, or a cluster"
    add("--backend", choices=ENGINES, default="loky", help=where)
    scheduler = "of a running cluster; without one, a cluster of --jobs workers on this machine"
    add("--address", help=scheduler)


def engine_of(name: str, address: str | None, jobs: int) -> Engine:
    """The engine of a name, not yet entered; ``jobs`` are counted as joblib does."""
    try:
        return ENGINES[name](address, joblib.effective_n_jobs(jobs))
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--backend {name} needs the package {error.name}, which is not installed: "
            f"pip install 'sklearn-mmdinit[{name}]'"
        ) from error
