"""Divides work among threads, each on one core, with gradients."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import chain, pairwise
from typing import Any, TypeVar

import torch

# A matrix product of fewer multiplications runs on one thread.
_SMALL_PRODUCT = 1 << 25
# Operations on fewer numbers run on one thread: to divide them among threads takes two
# milliseconds.
_FEW_NUMBERS = 1 << 18

T = TypeVar("T")


def worthwhile_threads(n_multiplications: float) -> AbstractContextManager[None]:
    """Use one thread if the largest matrix product is small; else change nothing.

    Near the limit a second thread gains a few per cent on an idle machine. On a busy machine it
    costs many times the work itself, because every product waits for the slower thread.
    """
    return nullcontext() if n_multiplications > _SMALL_PRODUCT else _one_thread()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = num_threads_when_settled()
    _set_num_threads_here(1)
    try:
        yield
    finally:
        _set_num_threads_here(before)


_setting_lock = threading.Lock()


def _set_num_threads_here(n: int) -> None:
    """Set the number of PyTorch's threads for the calling thread alone.

    torch.set_num_threads also sets the number with which new threads begin. So a helper thread,
    which is new, reads this number before that call and sets it again afterwards. Any thread that
    begins in between gets the wrong one. So the thread of an estimator first calls
    :func:`num_threads_when_settled`, which waits for the lock.
    """
    if n == torch.get_num_threads():
        return
    with _setting_lock, ThreadPoolExecutor(1) as new_thread:
        of_new_threads = new_thread.submit(torch.get_num_threads).result()
        try:
            torch.set_num_threads(n)
        finally:
            new_thread.submit(torch.set_num_threads, of_new_threads)


def num_threads_when_settled() -> int:
    """How many threads PyTorch uses in the calling thread.

    Waits until no other thread is changing its number: PyTorch fixes a thread's number when that
    thread first asks for it.
    """
    with _setting_lock:
        return torch.get_num_threads()


_team = threading.local()


@contextmanager
def team(n_multiplications: float) -> Iterator[None]:
    """Let :func:`run_on_threads` use all threads, and every PyTorch operation only one.

    PyTorch's own workers spin for milliseconds after each operation, on the core that the next
    chunk needs. If the largest matrix product is small, the team has one thread.
    """
    size = num_threads_when_settled() if n_multiplications > _SMALL_PRODUCT else 1
    before, _team.size = getattr(_team, "size", 1), size
    try:
        with _one_thread():
            yield
    finally:
        _team.size = before


def run_on_threads(
    n_items: int, work: Callable[[int, int], T], n_numbers: float = math.inf
) -> list[T]:
    """Divide items among the team: each thread computes one range of them alone.

    PyTorch divides every single operation among its threads, which then wait for each other. Here
    threads wait once, after a whole sequence of operations, and intermediate results stay in the
    cache of a core.

    `work` gets the bounds (start, stop) of a range and runs without gradients. It must not write
    what another range reads. Results are in the order of the ranges. Without a team, or if
    `n_numbers` is small, there is a single range.
    """
    n_threads = min(getattr(_team, "size", 1), n_items) if n_numbers >= _FEW_NUMBERS else 1

    # Each thread has its own settings of gradients and of autocast.
    dtype, is_on = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def without_gradients(start: int, stop: int) -> T:
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=is_on, cache_enabled=False):
            return work(start, stop)

    if n_threads == 1:
        return [without_gradients(0, n_items)]
    bounds = [n_items * i // n_threads for i in range(n_threads + 1)]
    pool = _pool(n_threads - 1)
    futures = [pool.submit(without_gradients, *bound) for bound in pairwise(bounds[1:])]
    try:
        result = without_gradients(0, bounds[1])  # in this thread
    finally:
        wait(futures)
    return [result, *(future.result() for future in futures)]


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        n_threads,
        thread_name_prefix="sklearn_mmdinit",
        initializer=_set_num_threads_here,
        initargs=(1,),
    )


def refuse_second_derivative() -> None:
    """Raise a RuntimeError in a backward pass that records a graph."""
    if torch.is_grad_enabled():
        raise RuntimeError("the terms are differentiable once; call backward without create_graph")


def chunked(
    chunk: Callable[[int], torch.Tensor], n_chunks: int, tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Concatenate the rows of chunks that the team computes.

    ``chunk(i)`` computes the rows of chunk i from `tensors`. No tensor in `tensors` may be computed
    from another one in it. Each chunk has its own graph, which ends at `tensors`. The result can be
    differentiated once.
    """
    result: torch.Tensor = _Chunked.apply(chunk, n_chunks, torch.is_grad_enabled(), *tensors)
    return result


class _Chunked(torch.autograd.Function):
    """Computes chunks on threads, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any,
        chunk: Callable[[int], torch.Tensor],
        n_chunks: int,
        with_gradients: bool,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        with_gradients &= any(tensor.requires_grad for tensor in tensors)

        def compute(start: int, stop: int) -> list[torch.Tensor]:
            with torch.set_grad_enabled(with_gradients):
                return [chunk(i) for i in range(start, stop)]

        results = list(chain(*run_on_threads(n_chunks, compute)))
        ctx.sizes = [len(result) for result in results]
        # Saved results keep the graphs of the chunks until the backward pass. PyTorch raises an
        # error there if the saved tensors have changed.
        ctx.save_for_backward(*results, *tensors)
        return torch.cat([result.detach() for result in results])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        n_chunks = len(ctx.sizes)
        results, tensors = ctx.saved_tensors[:n_chunks], ctx.saved_tensors[n_chunks:]
        gradients = grad_outputs[0].split(ctx.sizes)
        learned = [tensor for tensor in tensors if tensor.requires_grad]

        def compute(start: int, stop: int) -> list[torch.Tensor | None]:
            totals: list[torch.Tensor | None] = [None] * len(learned)
            for i in range(start, stop):
                if results[i].requires_grad:
                    terms = torch.autograd.grad(
                        results[i], learned, gradients[i], retain_graph=True, allow_unused=True
                    )
                    _add_(totals, terms)
            return totals

        totals, *further_totals = run_on_threads(n_chunks, compute)
        for terms in further_totals:
            _add_(totals, terms)
        of_learned = iter(totals)
        return None, None, None, *(next(of_learned) if t.requires_grad else None for t in tensors)


def _add_(totals: list[torch.Tensor | None], terms: Sequence[torch.Tensor | None]) -> None:
    """Add gradients to sums in place."""
    for place, term in enumerate(terms):
        total = totals[place]
        if term is not None:
            totals[place] = term.clone() if total is None else total.add_(term)


# Forked processes


def _forget_threads() -> None:
    """Drop the pool and the lock in a forked process, which has no thread that uses them."""
    global _setting_lock
    _pool.cache_clear()
    _setting_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget_threads)
