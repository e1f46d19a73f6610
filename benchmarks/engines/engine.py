"""Engines take calls and hand out their results as they are ready: loky, or a dask or ray cluster.

Every engine computes the same calls to the same last digit: each one has its number of threads, and
what it hands to joblib itself stays in its worker.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import joblib
import torch

from engines.threads import threads


class EngineUnavailableError(RuntimeError):
    """A cluster that cannot be reached, or cannot be used as it is; the message says why."""


class EngineLostError(RuntimeError):
    """A cluster that was there and is gone. What had come back by then is not lost."""


@dataclass(frozen=True)
class Call:
    """What one cell is computed from: ``function(*args, *shared)``.

    An engine brings each object of ``shared``, which many calls have in common by identity, to its
    workers once and not once for each call.
    """

    args: tuple[Any, ...]
    shared: tuple[Any, ...] = ()


def work(function: Callable[..., Any], n_threads: int, args: tuple[Any, ...], *shared: Any) -> Any:
    """One call in a worker of a cluster, which keeps its own calls to itself."""
    with threads(n_threads), joblib.parallel_config(backend="sequential"):
        return function(*args, *shared)


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

    def __init__(self, address: str | None, n_jobs: int) -> None:
        if address is not None:
            raise ValueError(
                f"--address {address}: loky has this machine's processes alone; an address is for "
                "--backend dask or ray"
            )
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
            yield from (function(*call.args, *call.shared) for call in calls)
            return
        # One thread a worker: also what makes a result the same for every number of jobs above
        # one. What is shared needs no care: joblib maps large arrays into every worker's memory.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            # Unordered: a result must be kept when it is ready, not when its turn comes.
            parallel = joblib.Parallel(self.n_jobs, return_as="generator_unordered")
        yield from parallel(joblib.delayed(function)(*call.args, *call.shared) for call in calls)

    def describe(self) -> dict[str, Any]:
        return {"name": "loky", "jobs": self.n_jobs}


# For a scheduler to answer, and for its first worker.
SECONDS_TO_CONNECT = 30


class _Cluster(Engine):
    """A cluster at an address, or one of our own with as many workers as ``n_jobs``."""

    def __init__(self, address: str | None, n_jobs: int) -> None:
        self.address = address
        self.n_jobs = n_jobs
        self._shared: dict[int, tuple[Any, Any]] = {}

    def _share(self, value: Any) -> Any:
        """What stands for an object that each worker, or each machine, is sent once."""
        if id(value) not in self._shared:
            # The value itself too: while it lives no other gets its id.
            self._shared[id(value)] = value, self._send(value)
        return self._shared[id(value)][1]

    @abstractmethod
    def _send(self, value: Any) -> Any: ...


class Dask(_Cluster):
    """Workers of a dask cluster, one thread each."""

    in_process = False

    def __init__(self, address: str | None, n_jobs: int) -> None:
        import distributed

        self.distributed = distributed
        super().__init__(address, n_jobs)

    def __enter__(self) -> Dask:
        # A lost scheduler is told of once, in the engine's own error and without a traceback.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        with ExitStack() as stack:
            target: Any = self.address
            if target is None:
                # Any free port: without an address it takes 8787, which may be another cluster's.
                own = self.distributed.LocalCluster(
                    n_workers=self.n_jobs, threads_per_worker=1, dashboard_address="127.0.0.1:0"
                )
                target = stack.enter_context(own)
            try:
                client = self.distributed.Client(
                    target, set_as_default=False, timeout=SECONDS_TO_CONNECT
                )
                self.client = stack.enter_context(client)
                # All of a cluster of our own; of another one whoever is there.
                wanted = self.n_jobs if self.address is None else 1
                self.client.wait_for_workers(wanted, timeout=SECONDS_TO_CONNECT)
            except (OSError, ValueError) as error:  # a TimeoutError is an OSError
                raise EngineUnavailableError(
                    f"no dask scheduler with workers answers at {self.address}: {error}"
                ) from error
            self._machines()
            # Every two seconds dask's memory manager takes away the copies of shared data that no
            # waiting call needs at that instant; the next call would send for them again.
            if self.client.amm.running():
                self.client.amm.stop()
                stack.callback(self._manage_memory_again)
            self._open = stack.pop_all()
        return self

    def _manage_memory_again(self) -> None:
        if self.client.status == "running":  # a scheduler that is lost manages nothing
            self.client.amm.start()

    def __exit__(self, *exception: object) -> None:
        # Before the workers go, which would else complain that data are lost.
        self._shared.clear()
        self._open.close()

    def _machines(self) -> dict[str, list[str]]:
        """The addresses of the workers on each machine."""
        machines: dict[str, list[str]] = {}
        for address, n_threads in sorted(self.client.nthreads().items()):
            if n_threads != 1:
                # Calls in one process would share PyTorch's number of threads, and Python's lock.
                raise EngineUnavailableError(
                    f"the dask worker {address} has {n_threads} threads; start as many workers "
                    "as there are cores, with one thread each: dask worker --nworkers -1 "
                    "--nthreads 1"
                )
            host = self.distributed.comm.get_address_host(address)
            machines.setdefault(host, []).append(address)
        return machines

    def _send(self, value: Any) -> Any:
        """A future; a worker that comes later fetches the value from another."""
        return self.client.scatter([value], broadcast=True, hash=False)[0]

    def _placement(self, whole_machine: bool) -> tuple[int, dict[str, Any]]:
        """Threads of a call, and where calls go."""
        if not whole_machine:
            return 1, {}
        machines = self._machines()
        # As many threads everywhere: their number changes results at rounding level.
        fewest = min(map(len, machines.values()), default=1)
        n_threads = torch.get_num_threads() if self.address is None else fewest
        # One worker of each machine; where it dies, its call may go to any other.
        first = [workers[0] for workers in machines.values()]
        return n_threads, {"workers": first, "allow_other_workers": True}

    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        n_threads, where = self._placement(whole_machine)
        lost = (CancelledError, self.distributed.comm.CommClosedError)
        futures: list[Any] = []
        try:
            for call in calls:
                shared = map(self._share, call.shared)
                args = (work, function, n_threads, call.args, *shared)
                futures.append(self.client.submit(*args, pure=False, **where))
            for future in self.distributed.as_completed(futures, loop=self.client.loop):
                yield future.result()
        except lost as error:
            # Dask's own message is about one call; the reason is a word like
            # "scheduler-connection-lost".
            reason = getattr(error, "reason", error)
            raise EngineLostError(f"the dask cluster is lost: {reason}") from error
        except Exception as error:
            cause = error.__cause__ or error
            if not isinstance(cause, ImportError | self.distributed.KilledWorker):
                raise  # the call's own
            raise EngineLostError(
                f"the dask cluster cannot make a call: {cause}; the scheduler and the workers need "
                "the package and, on PYTHONPATH, the folder benchmarks"
            ) from error
        finally:
            self.client.cancel(futures)

    def describe(self) -> dict[str, Any]:
        machines = self._machines()
        workers = sum(map(len, machines.values()))
        version = self.distributed.__version__
        return {"name": "dask", "version": version, "machines": len(machines), "workers": workers}


class Ray(_Cluster):
    """Workers of a ray cluster; this process has to run on one of its machines."""

    in_process = False

    # Between two looks whether the head is there; ray would wait a minute for it, then end this
    # process.
    SECONDS_BETWEEN_LOOKS = 2.0
    LOOKS_IN_VAIN = 5

    def __init__(self, address: str | None, n_jobs: int) -> None:
        # Read as ray is imported: a benchmark tells nobody that it runs.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self.ray = ray
        self._lost = False
        super().__init__(address, n_jobs)

    def __enter__(self) -> Ray:
        own = {"address": "local", "num_cpus": self.n_jobs, "include_dashboard": False}
        try:
            host, _, port = (self.address or "").rpartition(":")
            if host:  # not "auto": where nothing listens ray would try for five minutes
                self._knock(host, int(port), SECONDS_TO_CONNECT)
            where = own if self.address is None else {"address": self.address}
            self.ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineUnavailableError(
                f"no ray head answers at {self.address}: {error}"
            ) from error
        return self

    def __exit__(self, *exception: object) -> None:
        self._shared.clear()
        if not self._lost:
            self.ray.shutdown()

    @staticmethod
    def _knock(host: str, port: int, seconds: float) -> None:
        socket.create_connection((host, port), timeout=seconds).close()

    def _send(self, value: Any) -> Any:
        return self.ray.put(value)

    def _slots(self, whole_machine: bool) -> tuple[int, int]:
        """How many calls there can be at a time, and the threads of each."""
        nodes = self.ray.nodes()
        cores = [int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]]
        # As many threads everywhere: their number changes results at rounding level.
        n_threads = min(filter(None, cores), default=1) if whole_machine else 1
        return max(1, sum(n // n_threads for n in cores)), n_threads

    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        _, n_threads = self._slots(whole_machine)
        # A worker that dies is replaced, and its call made again.
        remote = self.ray.remote(num_cpus=n_threads, max_retries=-1)(work)
        waiting = [
            remote.remote(function, n_threads, call.args, *map(self._share, call.shared))
            for call in calls
        ]
        head, _, port = self.ray.get_runtime_context().gcs_address.rpartition(":")
        in_vain = 0
        while waiting:
            ready, waiting = self.ray.wait(waiting, timeout=self.SECONDS_BETWEEN_LOOKS)
            try:
                for reference in ready:
                    yield self.ray.get(reference)
                self._knock(head, int(port), self.SECONDS_BETWEEN_LOOKS)
                in_vain = 0
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except (self.ray.exceptions.RayError, OSError) as error:
                in_vain += 1
                if in_vain < self.LOOKS_IN_VAIN and isinstance(error, OSError):
                    continue
                self._lost = True
                raise EngineLostError(f"the ray cluster is lost: {error}") from error

    def describe(self) -> dict[str, Any]:
        machines = sum(node["Alive"] for node in self.ray.nodes())
        workers, _ = self._slots(whole_machine=False)
        return {
            "name": "ray",
            "version": self.ray.__version__,
            "machines": machines,
            "workers": workers,
        }


ENGINES: dict[str, Callable[[str | None, int], Engine]] = {"loky": Loky, "dask": Dask, "ray": Ray}


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
    """The engine of a name, not yet entered; ``jobs`` are counted as joblib does."""
    try:
        return ENGINES[name](address, joblib.effective_n_jobs(jobs))
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--backend {name} needs the package {error.name}, which is not installed: "
            f"pip install 'sklearn-mmdinit[{name}]'"
        ) from error
