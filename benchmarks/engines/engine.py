"""What every engine does: take calls, and hand out their results as they are ready."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import joblib

from engines.threads import threads

__all__ = ["Call", "Engine", "EngineLostError", "EngineUnavailableError", "one_by_one", "work"]


class EngineUnavailableError(RuntimeError):
    """A cluster that cannot be reached, or cannot be used as it is; the message says why."""


class EngineLostError(RuntimeError):
    """A cluster that was there and is gone. What had come back by then is not lost."""


@dataclass(frozen=True)
class Call:
    """What one cell is computed from: ``function(*args, *shared)``.

    Parameters
    ----------
    args : tuple
        Of this call alone; they travel with it.
    shared : tuple
        Objects that many calls have in common, by identity. An engine brings each of them to
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
    """One call in a worker of a cluster.

    What a worker's threads are by default differs from engine to engine, so they are set for
    each call. What the call itself hands to joblib stays here: dask's and ray's own workers
    would send a ``cross_val_score`` without ``n_jobs``, data and all, back to the cluster.
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
        """What the function returns for each call, in the order in which they end.

        Parameters
        ----------
        function : callable
            Found under its name in a module that workers can import.
        calls : iterable of Call
        whole_machine : bool, default=False
            Whether a call uses all the cores of its machine, as a pre-training does. Otherwise
            it has one thread, and there are as many calls at a time as there are cores.

        Raises
        ------
        EngineLostError
            If the cluster is lost on the way. The call that raises an error of its own, raises
            that one.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What results say of where they come from, as JSON can hold it."""
