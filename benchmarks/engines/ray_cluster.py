"""A ray cluster, by ray's own backend for joblib."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import joblib

from engines.engine import Call, Engine, EngineLostError, EngineUnavailableError, one_by_one, work

# Read as ray is imported. A thread of its pool that outlives a cluster would start another one;
# and a benchmark tells nobody that it runs.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.util.joblib.ray_backend import RayBackend

SECONDS_TO_CONNECT = 30.0
SECONDS_BETWEEN_LOOKS = 2.0
LOOKS_IN_VAIN = 5


@cache
def _fetch(reference: Any) -> Any:
    """What was shared, once for each worker; arrays stay in the memory that all have in common."""
    return ray.get(reference)


class _Backend(RayBackend):  # type: ignore[misc]
    """Ray's own, whose calls can be given up."""

    # Unlike the pool of processes that it inherits from, ray's calls back as each call ends.
    supports_return_generator = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.callbacks: list[Any] = []

    def submit(self, func: Any, callback: Any = None) -> Any:
        self.callbacks.append(callback)
        return super().submit(func, callback)

    def give_up(self, error: EngineLostError) -> None:
        """Answer every call with an error; joblib takes no notice where there was an answer."""
        for callback in list(self.callbacks):
            callback(error)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()

    def terminate(self) -> None:
        # Workers end with the last reference to them. Ray's way to end a pool reports each of them
        # as a failure, and waits for the head even where that is lost.
        self._pool = None
        self.reset_batch_stats()


class Ray(Engine):
    """Workers of a ray cluster whose head is at an address, this process being on one of its
    machines; or as many as ``n_jobs`` of a cluster of our own.
    """

    def __init__(self, address: str | None, n_jobs: int) -> None:
        self.address = address
        self.n_jobs = n_jobs
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._workers = ExitStack()
        self._backend: _Backend | None = None
        self._parallel: joblib.Parallel | None = None
        self._whole_machines = False
        self._lost: EngineLostError | None = None
        self._closed = threading.Event()

    def __enter__(self) -> Ray:
        # Its only word is that ray has no use for an argument of joblib's.
        logging.getLogger("ray.util.multiprocessing.pool").setLevel(logging.ERROR)
        if self.address is None:
            where: dict[str, Any] = {
                "address": "local",
                "num_cpus": self.n_jobs,
                "include_dashboard": False,
            }
        elif self.address.startswith("ray://"):
            raise EngineUnavailableError(
                f"{self.address}: ray's backend for joblib does not work through ray's client; run "
                "the command on one of the cluster's machines, with --address HOST:6379 or auto"
            )
        else:
            where = {"address": self.address}
        try:
            self._knock()
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineUnavailableError(
                f"no ray head answers at {self.address}: {error}"
            ) from error
        threading.Thread(target=self._watch, args=(self._places(),), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closed.set()
        self._end_workers()
        self._shared.clear()
        if self._lost is None:
            ray.shutdown()

    def _knock(self) -> None:
        """Raise an OSError where nothing listens; ray would try for five minutes."""
        host, _, port = (self.address or "").rpartition(":")
        if host:  # not "auto", nor a cluster that is still to be started
            socket.create_connection((host, int(port)), timeout=SECONDS_TO_CONNECT).close()

    def _places(self) -> list[tuple[str, int]]:
        """Where the head, and ray's own process on this machine, can be heard."""
        context = ray.get_runtime_context()
        head, _, port = context.gcs_address.rpartition(":")
        here = context.get_node_id()
        (node,) = [node for node in ray.nodes() if node["NodeID"] == here]
        return [(head, int(port)), (node["NodeManagerAddress"], node["NodeManagerPort"])]

    def _watch(self, places: list[tuple[str, int]]) -> None:
        """Look whether the head is there; ray waits a minute for it, then ends this process."""
        in_vain = 0
        while in_vain < LOOKS_IN_VAIN:
            if self._closed.wait(SECONDS_BETWEEN_LOOKS):
                return
            try:
                for place in places:
                    socket.create_connection(place, timeout=SECONDS_BETWEEN_LOOKS).close()
                in_vain = 0
            except OSError as error:
                in_vain += 1
                reason = f"the ray cluster is lost: {error}"
        self._lost = EngineLostError(reason)
        if self._backend is not None:
            self._backend.give_up(self._lost)

    def _share(self, value: Any) -> Any:
        """A reference to something in ray's store, which each machine then fetches once.

        Ray's backend for joblib would put the arguments of every call into that call's message.
        """
        if id(value) not in self._shared:
            # The value itself too: while it lives no other gets its id.
            self._shared[id(value)] = value, ray.put(value)
        return self._shared[id(value)][1]

    def _slots(self, whole_machine: bool) -> tuple[int, int]:
        """How many calls there can be at a time, and the threads of each."""
        cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        # As many threads everywhere: their number changes results at rounding level.
        n_threads = min(filter(None, cores), default=1) if whole_machine else 1
        return max(1, sum(n // n_threads for n in cores)), n_threads

    @property
    def in_process(self) -> bool:
        return self._slots(True)[0] == 1

    def _end_workers(self) -> None:
        self._workers.close()
        self._parallel = self._backend = None

    def _ready(self, slots: int, n_threads: int, whole_machines: bool) -> Any:
        """Workers for calls of a kind, which stay for the next calls if those are of that kind.

        Each takes seconds to import PyTorch, and has fetched what was shared before.
        """
        if self._parallel is None or self._whole_machines != whole_machines:
            self._end_workers()
            self._whole_machines = whole_machines
            self._backend = _Backend(
                ray_remote_args={
                    # Without it ray would put all of them on one machine.
                    "num_cpus": n_threads,
                    # A worker that dies is replaced, and makes its calls again.
                    "max_restarts": -1,
                    "max_task_retries": -1,
                }
            )
            with joblib.parallel_config(backend=self._backend):
                parallel = joblib.Parallel(
                    slots,
                    return_as="generator_unordered",
                    pre_dispatch="n_jobs" if whole_machines else "2 * n_jobs",
                    batch_size=1 if whole_machines else "auto",
                )
            self._parallel = self._workers.enter_context(parallel)
        return self._parallel

    def results(
        self,
        function: Callable[..., Any],
        calls: Iterable[Call],
        *,
        whole_machine: bool = False,
    ) -> Iterator[Any]:
        if self._lost is not None:
            raise self._lost
        slots, n_threads = self._slots(whole_machine)
        if slots == 1:  # joblib makes no pool of one
            yield from one_by_one(function, calls)
            return
        delayed = [
            joblib.delayed(work)(
                function, n_threads, _fetch, call.args, *map(self._share, call.shared)
            )
            for call in calls
        ]
        try:
            with ExitStack() as cut_short:  # calls may be under way still
                cut_short.callback(self._end_workers)
                yield from self._ready(slots, n_threads, whole_machine)(delayed)
                cut_short.pop_all()
        except ray.exceptions.RayError as error:  # what a call itself raises is none
            raise EngineLostError(f"the ray cluster failed: {error}") from error

    def describe(self) -> dict[str, Any]:
        machines = sum(node["Alive"] for node in ray.nodes())
        workers, _ = self._slots(whole_machine=False)
        return {
            "name": "ray",
            "version": ray.__version__,
            "machines": machines,
            "workers": workers,
        }
