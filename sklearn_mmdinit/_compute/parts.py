"""A differentiable function computed part by part, the parts shared among threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch

from .threads import share
from .workspace import Empty

__all__ = ["concatenated"]

Part = Callable[[int, Sequence[torch.Tensor]], torch.Tensor]


def concatenated(
    part: Part,
    n_parts: int,
    tensors: Sequence[torch.Tensor],
    scratch: Callable[..., Empty] | None = None,
) -> torch.Tensor:
    """The parts of a result, one after the other.

    What a part computes, forward or backward, is computed from end to end by one thread
    before it takes the next part: what one operation leaves in the core's cache is there for
    the next one, and no thread waits for another in between.

    Parameters
    ----------
    part : callable
        Takes the number of a part and the tensors; returns that part, made of operations of
        PyTorch's. Called from several threads at once.
    n_parts : int
        How many there are.
    tensors : sequence of Tensor
        What the parts depend on; gradients flow to those that require them.
    scratch : callable, default=None
        :meth:`Workspace.scratch`, for the sums of gradients; None: fresh memory.

    Returns
    -------
    Tensor
        Along the first axis; to be differentiated at most once.
    """
    if n_parts == 1:
        return part(0, tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        result: torch.Tensor = _Concatenated.apply(part, n_parts, scratch, *tensors)
        return result

    def stretch(start: int, stop: int) -> list[torch.Tensor]:
        return [part(i, tensors) for i in range(start, stop)]

    return torch.cat(list(chain(*share(n_parts, stretch))))


class _Concatenated(torch.autograd.Function):
    """Each part has a graph of its own, from copies of the tensors that share their memory."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Part,
        n_parts: int,
        scratch: Callable[..., Empty] | None,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        needed = [tensor.requires_grad for tensor in tensors]

        def stretch(start: int, stop: int) -> list[Any]:
            graphs = []
            for i in range(start, stop):
                leaves = [
                    tensor.detach().requires_grad_(needs)
                    for tensor, needs in zip(tensors, needed, strict=True)
                ]
                with torch.enable_grad():
                    result = part(i, leaves)
                inputs = [leaf for leaf in leaves if leaf.requires_grad]
                graphs.append((result, inputs))
            return graphs

        ctx.graphs = list(chain(*share(n_parts, stretch)))
        ctx.needed, ctx.scratch = needed, scratch
        return torch.cat([result.detach() for result, _ in ctx.graphs])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = grad_outputs[0].split([len(result) for result, _ in ctx.graphs])

        def stretch(start: int, stop: int) -> list[torch.Tensor]:
            total: list[torch.Tensor] = []
            for i in range(start, stop):
                result, inputs = ctx.graphs[i]
                own = torch.autograd.grad(result, inputs, gradients[i])
                if not total:
                    # A thread may take two stretches: sums are a stretch's own.
                    total = [_sum_of(g, ctx.scratch, start, at) for at, g in enumerate(own)]
                else:
                    for sum_, gradient in zip(total, own, strict=True):
                        sum_ += gradient
            return total

        first, *others = share(len(ctx.graphs), stretch)
        for other in others:
            for sum_, gradient in zip(first, other, strict=True):
                sum_ += gradient
        totals = iter(first)
        return (None, None, None, *(next(totals) if needs else None for needs in ctx.needed))


def _sum_of(
    gradient: torch.Tensor, scratch: Callable[..., Empty] | None, start: int, place: int
) -> torch.Tensor:
    """The first term in memory of the sum's own: the next part overwrites that of a term."""
    if scratch is None:
        return gradient.clone()
    return scratch(start, place)("sum", tuple(gradient.shape), gradient).copy_(gradient)
