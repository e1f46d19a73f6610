"""A differentiable function computed part by part, some once more for their gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["recomputed"]


def recomputed(
    part: Callable[[int], torch.Tensor],
    n_parts: int,
    tensors: Sequence[torch.Tensor],
    n_kept: int = 0,
) -> torch.Tensor:
    """The parts of a result, one after the other, with the memory of a few.

    What the first parts need for their gradient is kept from the forward to the backward pass;
    what one of the others needs is computed again.

    Parameters
    ----------
    part : callable
        Takes the number of a part and returns it. Called a second time it must return the same
        numbers: its draws have to come from a state that it goes back to.
    n_parts : int
        How many there are.
    tensors : sequence of Tensor
        Leaves that the parts read; gradients flow to those that require them.
    n_kept : int, default=0
        How many are kept.

    Returns
    -------
    Tensor
        Along the first axis.
    """
    if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
        n_kept = n_parts
    results = [part(i) for i in range(min(n_kept, n_parts))]
    if n_kept < n_parts:
        results.append(_Recomputed.apply(part, range(n_kept, n_parts), *tensors))
    return torch.cat(results)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, part: Callable[[int], torch.Tensor], numbers: range, *tensors: torch.Tensor
    ) -> torch.Tensor:
        results = [part(i) for i in numbers]  # gradients are off in here
        ctx.part, ctx.numbers, ctx.sizes = part, numbers, [len(result) for result in results]
        ctx.save_for_backward(*tensors)  # which notices if they were changed in between
        return torch.cat(results)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tensors = ctx.saved_tensors
        needed = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
        totals: list[torch.Tensor | None] = [None] * len(tensors)
        gradients = grad_outputs[0].split(ctx.sizes)
        for number, gradient in zip(ctx.numbers, gradients, strict=True):
            with torch.enable_grad():
                result = ctx.part(number)
            own = torch.autograd.grad(
                result, [tensors[i] for i in needed], gradient, allow_unused=True
            )
            for i, term in zip(needed, own, strict=True):
                if term is not None:
                    total = totals[i]
                    totals[i] = term if total is None else total + term
        return (None, None, *totals)
