"""How many threads a piece of work is worth, and who does which part of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import TypeVar

import torch

__all__ = ["one_thread", "share", "team", "worthwhile_threads"]

# Multiplications of a matrix product under which one thread does it.
_SMALL_PRODUCT = 1 << 25

T = TypeVar("T")


@contextmanager
def worthwhile_threads(widths: Sequence[int], n_rows: int) -> Iterator[None]:
    """One thread for products too small to share, as many as before for others.

    At sizes near the limit a second thread gains a few per cent on an idle machine, and on a
    busy one it costs many times the whole work, spent waiting at the end of every product.

    Parameters
    ----------
    widths : sequence of int
        Of the network, from the input to the logits.
    n_rows : int
        Rows that go through it at a time.
    """
    largest = max(n_in * n_out for n_in, n_out in pairwise(widths))
    if n_rows * largest > _SMALL_PRODUCT:
        yield
        return
    with one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, and as many as before afterwards."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_team = threading.local()


@contextmanager
def team(widths: Sequence[int], n_rows: int, device: str | torch.device) -> Iterator[None]:
    """Let :func:`share` use the threads, and every operation outside it one.

    PyTorch's own workers spin for milliseconds after each operation that they took part in,
    on the core that the next share needs.

    Parameters
    ----------
    widths : sequence of int
        Of the network, from the input to the logits; a small one is not worth a second thread.
    n_rows : int
        Rows that go through it at a time.
    device : str or torch.device
        Where it is. A team is the CPU's: on another device each thread has a queue of its own,
        and nothing would put what they launch in order.
    """
    if torch.device(device).type != "cpu":
        yield
        return
    with worthwhile_threads(widths, n_rows):
        before, _team.size = getattr(_team, "size", 1), torch.get_num_threads()
        try:
            with one_thread():
                yield
        finally:
            _team.size = before


def share(n: int, work: Callable[[int, int], T]) -> list[T]:
    """Divide n items among a team: each thread works on its stretch from end to end, alone.

    PyTorch shares every single operation among its threads, which then wait for one another;
    here they meet once for a whole sequence of operations, and what one operation leaves in
    a core's cache is there for the next.

    Parameters
    ----------
    n : int
        Number of items.
    work : callable
        Called with the bounds (start, stop) of a stretch of ``range(n)``, without gradients;
        must write nothing that another stretch reads or writes.

    Returns
    -------
    list
        What the calls returned, in the order of the stretches: at most one a thread.
    """
    n_threads = min(getattr(_team, "size", 1), n)
    if n_threads == 1:
        return [_without_gradients(work, 0, n)]
    bounds = [n * i // n_threads for i in range(n_threads + 1)]
    others = [
        _pool(n_threads - 1).submit(_without_gradients, work, start, stop)
        for start, stop in pairwise(bounds[1:])
    ]
    try:
        first = _without_gradients(work, 0, bounds[1])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


def _without_gradients(work: Callable[[int, int], T], start: int, stop: int) -> T:
    with torch.no_grad():  # of this thread; the caller's setting is its own
        return work(start, stop)


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    # The number of threads is each thread's own: the caller's stays what it is.
    return ThreadPoolExecutor(
        n_threads,
        thread_name_prefix="sklearn_mmdinit",
        initializer=torch.set_num_threads,
        initargs=(1,),
    )


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    # A process forked from this one has the pool but not its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)
