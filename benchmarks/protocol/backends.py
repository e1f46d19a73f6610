"""Computes calls by joblib: in processes of this machine, or on a dask cluster.

Both give the same figures to the last digit: a call has its number of threads, and what
it hands to joblib itself stays in its worker.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import joblib
import torch
from threadpoolctl import threadpool_limits

SECONDS_TO_CONNECT = 30  # for a scheduler to answer, and for its first worker

Call = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Arguments of a call, and behind them those that many calls share: a worker is sent these once."""


class ClusterError(RuntimeError):
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


def identity(value: Any) -> Any:
    return value


def from_dask(value: Any) -> Any:
    """What was sent: joblib makes the calls of a single worker in this process, with futures."""
    import distributed

    return value.result() if isinstance(value, distributed.Future) else value


def run_call(
    function: Callable[..., Any],
    n_threads: int,
    receive: Callable[[Any], Any],
    args: tuple[Any, ...],
    *shared: Any,
) -> Any:
    """Make a call in a worker."""
    with threads(n_threads), joblib.parallel_config(backend="sequential"):
        return function(*args, *map(receive, shared))


@dataclass(frozen=True)
class Workers:
    """Workers of a joblib backend, ``n_jobs`` of which work at a time, and its ``options``.

    ``machines``: how many machines there are, how many threads a call may have that takes a whole
    one, and the options it needs; None where such calls run in this process. ``send`` sends an
    object to all workers and returns what stands for it, of which ``receive`` makes the object
    there. ``lost``: the errors of a lost cluster.
    """

    backend: str
    n_jobs: int
    options: dict[str, Any]
    machines: tuple[int, int, dict[str, Any]] | None = None
    send: Callable[[Any], Any] = identity
    receive: Callable[[Any], Any] = identity
    lost: tuple[type[BaseException], ...] = ()
    sent: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def results(
        self, function: Callable[..., Any], calls: Iterable[Call], whole_machine: bool = False
    ) -> Iterator[Any]:
        """Yield what a function of an importable module returns for each call, as the calls end.

        A call has one thread, or all cores of its machine, as a pre-training does. Raises the
        call's own error, or a ClusterError.
        """
        if whole_machine and self.machines is None:
            yield from (function(*args, *shared) for args, shared in calls)
            return
        n_jobs, n_threads, options = self.n_jobs, 1, self.options
        if whole_machine and self.machines is not None:
            n_jobs, n_threads, options = self.machines
        with joblib.parallel_config(backend=self.backend, **options):
            parallel = joblib.Parallel(
                n_jobs,
                return_as="generator_unordered",
                batch_size=1,
                # A call that waits for its machine may be stolen by an idle worker of the same one.
                pre_dispatch=n_jobs if whole_machine else "2*n_jobs",
            )
        try:
            # All is sent first: joblib asks for further calls in threads that must not wait.
            jobs = [
                joblib.delayed(run_call)(
                    function, n_threads, self.receive, args, *map(self._send_once, shared)
                )
                for args, shared in calls
            ]
            yield from parallel(jobs)
        except self.lost as error:
            # Dask's reason is a word like "scheduler-connection-lost".
            reason = getattr(error, "reason", error)
            raise ClusterError(f"the {self.backend} cluster is lost: {reason}") from error

    def _send_once(self, value: Any) -> Any:
        if id(value) not in self.sent:
            # The object is kept too: while it lives no other has its id.
            self.sent[id(value)] = value, self.send(value)
        return self.sent[id(value)][1]


def local_workers(jobs: int) -> Workers:
    """Processes of this machine, or this process for one; ``jobs`` are counted as joblib does."""
    # Joblib maps large shared arrays into the memory of every process.
    n_jobs = joblib.effective_n_jobs(jobs)
    return Workers("loky", n_jobs, {"inner_max_num_threads": 1} if n_jobs > 1 else {})


@contextmanager
def _dask(address: str | None, n_jobs: int) -> Iterator[Workers]:
    import distributed

    try:
        # Any free port: without one a cluster takes 8787, which may be another's.
        target = address or distributed.LocalCluster(
            n_workers=n_jobs, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
        client = distributed.Client(target, set_as_default=False, timeout=SECONDS_TO_CONNECT)
        client.wait_for_workers(1 if address else n_jobs, timeout=SECONDS_TO_CONNECT)
    except (OSError, ValueError) as error:  # a TimeoutError is an OSError
        raise ClusterError(f"no dask workers answer at {address}: {error}") from error
    # Dask's memory manager leaves one copy of shared data that no waiting call needs just then: the
    # next call would send for it, and a dying worker may take it along.
    managed = client.amm.running()
    client.amm.stop()
    sent: dict[int, tuple[Any, Any]] = {}
    try:
        machines: dict[str, list[str]] = {}
        for worker, n_threads in sorted(client.nthreads().items()):
            if n_threads != 1:
                # Calls in one process would share PyTorch's number of threads, and Python's lock.
                raise ClusterError(
                    f"the dask worker {worker} has {n_threads} threads; start as many workers "
                    "as there are cores: dask worker --nworkers -1 --nthreads 1"
                )
            machines.setdefault(distributed.comm.get_address_host(worker), []).append(worker)
        # As many threads everywhere: their number changes results at rounding level.
        fewest = min(map(len, machines.values())) if address else torch.get_num_threads()
        options = {"client": client, "pure": False}
        # One worker of each machine; where it dies, its call may go to any other.
        firsts = {
            "workers": [workers[0] for workers in machines.values()],
            "allow_other_workers": True,
        }
        yield Workers(
            "dask",
            sum(map(len, machines.values())),
            options,
            (len(machines), fewest, options | firsts),
            lambda value: client.scatter([value], broadcast=True, hash=False)[0],
            from_dask,
            (CancelledError, distributed.comm.CommClosedError),
            sent,
        )
    finally:
        sent.clear()
        if address is None:
            client.shutdown()
        elif managed and client.status == "running":
            with suppress(OSError):  # a scheduler lost just now still counts as running
                client.amm.start()
        client.close()


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    where = "loky: processes of this machine; dask: a cluster"
    parser.add_argument("--backend", choices=["loky", "dask"], default="loky", help=where)
    address = "of a running dask cluster; without one, a cluster of --jobs workers on this machine"
    parser.add_argument("--address", help=address)


def check_backend_options(options: argparse.Namespace) -> None:
    """Raise a ValueError where dask is not installed, or an address is not for it."""
    if options.backend == "dask" and importlib.util.find_spec("distributed") is None:
        raise ValueError(
            "--backend dask needs the package distributed, which is not installed: "
            "pip install 'sklearn-mmdinit[dask]'"
        )
    if options.address and options.backend != "dask":
        raise ValueError(f"--address {options.address} is for --backend dask, not for loky")


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[Workers]:
    """Workers as the command line asks for them; a ClusterError where no cluster answers."""
    if options.backend == "loky":
        yield local_workers(options.jobs)
        return
    with _dask(options.address, joblib.effective_n_jobs(options.jobs)) as workers:
        yield workers
