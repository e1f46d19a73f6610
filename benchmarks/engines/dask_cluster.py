"""A dask cluster, by joblib's backend for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from typing import Any

import distributed
import joblib
import torch
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError, get_address_host
from joblib._dask import DaskDistributedBackend  # what backend="dask" stands for

from engines.engine import Call, Engine, EngineLostError, EngineUnavailableError, work

# For a scheduler to answer, and for its first worker.
SECONDS_TO_CONNECT = 30


class _Backend(DaskDistributedBackend):  # type: ignore[misc]
    """joblib's own, in which every call has an answer."""

    def effective_n_jobs(self, n_jobs: int) -> int:
        # With one job joblib would make the calls in this process, which has no worker's data.
        return max(2, super().effective_n_jobs(n_jobs))

    def submit(self, func: Any, callback: Any = None) -> Any:
        future = super().submit(func, callback)

        def answer(done: Any) -> None:
            if error := done.exception():
                cause = error.__cause__ or error
                hint = ""
                if isinstance(cause, ImportError):
                    hint = (
                        "; the scheduler and the workers need the package and, on PYTHONPATH, the "
                        "folder benchmarks"
                    )
                callback(EngineLostError(f"the dask cluster cannot make a call: {cause}{hint}"))

        # joblib's own calls back with results alone. After an error around a call (workers that
        # die of it one after the other, a module they do not find) it would wait for ever.
        future.add_done_callback(answer)
        return future


class Dask(Engine):
    """Workers at a dask scheduler's address, or as many as ``n_jobs`` of a cluster of our own."""

    in_process = False

    def __init__(self, address: str | None, n_jobs: int) -> None:
        self.address = address
        self.n_jobs = n_jobs
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Dask:
        # A lost scheduler is told of once, in the engine's own error and without a traceback.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        with ExitStack() as stack:
            target: Any = self.address
            if target is None:
                # Any free port: without an address it takes 8787, which may be another cluster's.
                own = LocalCluster(
                    n_workers=self.n_jobs, threads_per_worker=1, dashboard_address="127.0.0.1:0"
                )
                target = stack.enter_context(own)
            try:
                client = Client(target, set_as_default=False, timeout=SECONDS_TO_CONNECT)
                self.client = stack.enter_context(client)
                # All of a cluster of our own; of another one whoever is there.
                wanted = self.n_jobs if self.address is None else 1
                self.client.wait_for_workers(wanted, timeout=SECONDS_TO_CONNECT)
            except (OSError, ValueError) as error:  # a TimeoutError is an OSError
                what = "has no workers" if hasattr(self, "client") else "does not answer"
                raise EngineUnavailableError(
                    f"the dask scheduler at {self.address} {what}: {error}"
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
            machines.setdefault(get_address_host(address), []).append(address)
        return machines

    def _share(self, value: Any) -> Any:
        """A future of something that each worker then holds.

        joblib would scatter the large arguments of every call anew, to one worker, with which
        they are lost. A worker that comes later fetches it from another.
        """
        if id(value) not in self._shared:
            (future,) = self.client.scatter([value], broadcast=True, hash=False)
            # The value itself too: while it lives no other gets its id.
            self._shared[id(value)] = value, future
        return self._shared[id(value)][1]

    def _placement(self, whole_machine: bool) -> tuple[int, int | str, dict[str, Any]]:
        """Threads of a call, how many calls are under way at most, and where they go."""
        if not whole_machine:
            return 1, "2 * n_jobs", {}
        machines = self._machines()
        # As many threads everywhere: their number changes results at rounding level.
        fewest = min(map(len, machines.values()), default=1)
        n_threads = torch.get_num_threads() if self.address is None else fewest
        # One worker of each machine, and no more calls at a time than there are machines. Where
        # such a worker dies, its call may go to any other.
        first = [workers[0] for workers in machines.values()]
        return n_threads, max(1, len(first)), {"workers": first, "allow_other_workers": True}

    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        n_threads, under_way, where = self._placement(whole_machine)
        try:
            # Args in a tuple: joblib leaves those alone. And all of it now: later calls are sent
            # by the thread that a scatter would wait for.
            delayed = [
                joblib.delayed(work)(
                    function, n_threads, None, call.args, *map(self._share, call.shared)
                )
                for call in calls
            ]
            with joblib.parallel_config(backend=_Backend(client=self.client, **where)):
                parallel = joblib.Parallel(
                    return_as="generator_unordered",
                    pre_dispatch=under_way,
                    batch_size=1 if whole_machine else "auto",
                )
            done = parallel(delayed)
        except (OSError, CancelledError) as error:
            raise EngineLostError(f"the dask cluster is lost: {error}") from error
        try:
            yield from done
        except (CancelledError, CommClosedError) as error:
            # Dask's own message is about one call; the reason is a word like
            # "scheduler-connection-lost".
            reason = getattr(error, "reason", error)
            raise EngineLostError(f"the dask cluster is lost: {reason}") from error

    def describe(self) -> dict[str, Any]:
        machines = self._machines()
        workers = sum(map(len, machines.values()))
        version = distributed.__version__
        return {"name": "dask", "version": version, "machines": len(machines), "workers": workers}
