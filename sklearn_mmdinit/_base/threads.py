"""Threads that share a piece of work, and functions computed in parts, each on one core."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import chain, pairwise
from typing import Any, TypeVar

import torch

# Multiplications of a matrix product under which one thread does it.
_SMALL_PRODUCT = 1 << 25
# Numbers, of all arrays of a sequence of operations on one, under which one thread does it: to
# share it takes two milliseconds.
_FEW_NUMBERS = 1 << 18

T = TypeVar("T")


def worthwhile_threads(n_multiplications: float) -> AbstractContextManager[None]:
    """One thread where the largest product is too small to share, as many as before elsewhere.

    At sizes near the limit a second thread gains a few per cent on an idle machine, and on a
    busy one it costs many times the whole work, spent waiting at the end of every product.
    """
    return nullcontext() if n_multiplications > _SMALL_PRODUCT else _one_thread()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_team = threading.local()


@contextmanager
def team(n_multiplications: int, device: str | torch.device) -> Iterator[None]:
    """Let :func:`share` use the threads where they are worthwhile, and every operation outside one.

    PyTorch's own workers spin for milliseconds after each operation that they took part in,
    on the core that the next share needs. A team is the CPU's: on another device each thread has
    a queue of its own, and nothing would put what they launch in order.
    """
    if torch.device(device).type != "cpu":
        yield
        return
    with worthwhile_threads(n_multiplications):
        before, _team.size = getattr(_team, "size", 1), torch.get_num_threads()
        try:
            with _one_thread():
                yield
        finally:
            _team.size = before


def run_on_threads(n: int, work: Callable[[int, int], T], n_numbers: float = math.inf) -> list[T]:
    """Divide n items among a team: each thread works on its stretch from end to end, alone.

    PyTorch shares every single operation among its threads, which then wait for one another;
    here they meet once for a whole sequence of operations, and what one operation leaves in
    a core's cache is there for the next.

    `work` is called with the bounds (start, stop) of a stretch, without gradients, and must write
    nothing that another stretch reads or writes. What the calls return comes in the order of the
    stretches, at most one a thread; a single one where the arrays have few numbers.
    """
    n_threads = min(getattr(_team, "size", 1), n) if n_numbers >= _FEW_NUMBERS else 1
    alone = torch.no_grad()(work)  # in whichever thread; the caller's setting is its own
    if n_threads == 1:
        return [alone(0, n)]
    bounds = [n * i // n_threads for i in range(n_threads + 1)]
    others = [
        _pool(n_threads - 1).submit(alone, start, stop) for start, stop in pairwise(bounds[1:])
    ]
    try:
        first = alone(0, bounds[1])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


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


def in_parts(
    part: Callable[[int, Any], torch.Tensor],
    n_parts: int,
    parameters: Sequence[torch.Tensor],
    n_kept: int | None = None,
    common: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> torch.Tensor:
    """Rows of parts, one after the other, computed by the team where there is one.

    `part` makes its rows from its number and what `around` gives, and draws the same each time that
    it is called. The result is differentiable by `parameters` and by what parts have in `common`:
    pairs of what was computed before them and of the leaf of the same values that they read in its
    place. The graphs of `n_kept` parts (None: all) are kept for their gradient; the others are
    computed once more. `around` makes what parts are computed within: once for all of them, and
    once more for those that are computed again.
    """
    pairs = [*((p, p) for p in parameters), *common]
    learned = [t for t, _ in pairs if t.requires_grad]
    own = [leaf for t, leaf in pairs if t.requires_grad]
    kept = n_parts if n_kept is None else n_kept
    if not (torch.is_grad_enabled() and learned):
        kept = 0
    return _InParts.apply(part, n_parts, kept, own, around, *learned)


class _InParts(torch.autograd.Function):
    """Each part has a graph of its own, back to the leaves that all parts have in common."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Callable[[int, Any], torch.Tensor],
        n_parts: int,
        n_kept: int,
        leaves: Sequence[torch.Tensor],
        around: Callable[[], AbstractContextManager[Any]],
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        def stretch(start: int, stop: int) -> list[torch.Tensor]:
            results = []
            for i in range(start, stop):
                with torch.set_grad_enabled(i < n_kept):
                    results.append(part(i, made))
            return results

        ctx.part, ctx.n_kept, ctx.around = part, n_kept, around
        with around() as made:
            ctx.results = list(chain(*run_on_threads(n_parts, stretch)))
        ctx.sizes = [len(result) for result in ctx.results]
        ctx.save_for_backward(*leaves)  # which notices if they were changed in between
        whole = torch.cat([result.detach() for result in ctx.results])
        ctx.results[n_kept:] = []
        return whole

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        leaves = ctx.saved_tensors
        gradients = grad_outputs[0].split(ctx.sizes)

        def stretch(start: int, stop: int) -> list[torch.Tensor | None]:
            totals: list[torch.Tensor | None] = [None] * len(leaves)
            for i in range(start, stop):
                if i < ctx.n_kept:
                    result = ctx.results[i]
                else:
                    with torch.enable_grad():
                        result = ctx.part(i, made)
                if result.requires_grad:
                    own = torch.autograd.grad(result, leaves, gradients[i], allow_unused=True)
                    _add_(totals, own)
            return totals

        with ctx.around() if ctx.n_kept < len(ctx.sizes) else nullcontext() as made:
            first, *others = run_on_threads(len(ctx.sizes), stretch)
        for other in others:
            _add_(first, other)
        return (None, None, None, None, None, *first)


def _add_(totals: list[torch.Tensor | None], terms: Sequence[torch.Tensor | None]) -> None:
    """Add terms to sums, which begin as copies: the next part overwrites what a term is in."""
    for place, term in enumerate(terms):
        if term is not None:
            total = totals[place]
            totals[place] = term.clone() if total is None else total.add_(term)


class Buffers:
    """Memory that the next step overwrites: fresh memory comes as pages to be zeroed."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, torch.Tensor] = {}

    def take(self, place: Hashable, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
        """The memory of a place, not initialised; no two users of a step have one in common."""
        key = (place, shape, like.dtype, like.device)
        if key not in self._kept:
            self._kept[key] = like.new_empty(shape)
        # Another tensor of the same memory: to one that is kept here autograd would tie the graph
        # of a step, which holds these buffers, and neither would ever be given back.
        return self._kept[key].detach()
