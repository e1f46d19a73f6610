"""Computes a tensor in chunks on threads, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch

from .threads import run_on_threads


def chunked(
    chunk: Callable[[int], torch.Tensor], n_chunks: int, tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Concatenate the rows of chunks that the team computes.

    ``chunk(i)`` computes the rows of chunk i from `tensors`. No tensor in `tensors` may be computed
    from another one in it. Each chunk has its own graph, which ends at `tensors`. The result can be
    differentiated as often as the chunks.
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
        ctx.chunk = chunk
        ctx.sizes = [len(result) for result in results]
        # Saved results keep the graphs of the chunks until the backward pass. PyTorch raises an
        # error there if the saved tensors have changed.
        ctx.save_for_backward(*results, *tensors)
        return torch.cat([result.detach() for result in results])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        create_graph = torch.is_grad_enabled()  # for a second derivative
        chunk = ctx.chunk
        n_chunks = len(ctx.sizes)
        results, tensors = ctx.saved_tensors[:n_chunks], ctx.saved_tensors[n_chunks:]
        gradients = grad_outputs[0].split(ctx.sizes)
        learned = [tensor for tensor in tensors if tensor.requires_grad]

        def compute(start: int, stop: int) -> list[torch.Tensor | None]:
            totals: list[torch.Tensor | None] = [None] * len(learned)
            with torch.set_grad_enabled(create_graph):
                for i in range(start, stop):
                    if results[i].requires_grad:
                        # A second derivative needs a new graph: the chunk is computed again.
                        terms = torch.autograd.grad(
                            chunk(i) if create_graph else results[i],
                            learned,
                            gradients[i],
                            retain_graph=True,
                            create_graph=create_graph,
                            allow_unused=True,
                        )
                        _add_(totals, terms)
            return totals

        totals, *further_totals = run_on_threads(n_chunks, compute)
        for terms in further_totals:
            _add_(totals, terms)
        of_learned = iter(totals)
        return None, None, None, *(next(of_learned) if t.requires_grad else None for t in tensors)


def _add_(totals: list[torch.Tensor | None], terms: Sequence[torch.Tensor | None]) -> None:
    """Add gradients to sums, in place unless the sums are part of a graph."""
    for place, term in enumerate(terms):
        total = totals[place]
        if term is None:
            continue
        if total is None:
            totals[place] = term if term.requires_grad else term.clone()
        else:
            totals[place] = total + term if total.requires_grad else total.add_(term)
