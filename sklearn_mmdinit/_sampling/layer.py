"""One layer of the perturbed networks: what its samplers are told, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._compute import Empty, StepRandom, fresh

__all__ = ["Sampling", "before_relu", "factor", "parameter_gradients", "product"]


@dataclass(frozen=True)
class Sampling:
    """How the perturbed copies of a layer are to be drawn.

    Parameters
    ----------
    n_networks : int
        Number of copies: K, or those of a part of the work.
    scale : float
        The paper's s.
    random : StepRandom
        Source of the draws.
    relu : bool, default=False
        Whether the layer's activation, the ReLU, is applied too.
    layer : int, default=0
        Number of the layer.
    kept, scratch : callable, default=fresh
        Allocators of what is large: what the backward pass needs, and what it does not.
    rounding : torch.dtype, default=None
        Of the factors of large products; None: they stay as they are.
    """

    n_networks: int
    scale: float
    random: StepRandom
    relu: bool = False
    layer: int = 0
    kept: Empty = fresh
    scratch: Empty = fresh
    rounding: torch.dtype | None = None


def parameter_gradients(
    G: torch.Tensor, H: torch.Tensor, how: Sampling, rounded: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of the weight and the bias that the copies have in common.

    Parameters
    ----------
    G : Tensor of shape (n, B, n_out)
        Gradient at the layer's outputs.
    H : Tensor of shape (n, B, n_in)
        Its inputs.
    how : Sampling
        Of the layer.
    rounded : Tensor of shape (n B, n_out), default=None
        G as a :func:`factor`, where it is known already.

    Returns
    -------
    weight : Tensor of shape (n_out, n_in)
    bias : Tensor of shape (n_out,)
    """
    flat = G.flatten(0, 1)
    G = factor("output gradient", flat, how) if rounded is None else rounded
    # Each layer's own: they live until those of all layers are there.
    out = how.scratch(f"weight gradient {how.layer}", (flat.shape[1], H.shape[2]), H)
    return product(G.mT, factor("inputs", H.flatten(0, 1), how), out, how), flat.sum(0)


def factor(role: str, matrix: torch.Tensor, how: Sampling) -> torch.Tensor:
    """A matrix as it goes into large products: itself, or a rounded copy.

    `role` tells apart the copies that are needed at the same time.
    """
    if how.rounding is None:
        return matrix
    like = matrix.new_empty(0, dtype=how.rounding)
    return how.scratch(role, tuple(matrix.shape), like).copy_(matrix)


def product(
    left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, how: Sampling
) -> torch.Tensor:
    """The product of two factors, in `out`, which is returned."""
    if how.rounding is None:
        return torch.mm(left, right, out=out)
    # Sums are in float32, but the kernel rounds what it writes.
    rounded = how.scratch("product", tuple(out.shape), left)
    return out.copy_(torch.mm(left, right, out=rounded))


def before_relu(grad_out: torch.Tensor, out: torch.Tensor | None, how: Sampling) -> torch.Tensor:
    """The gradient before the ReLU that gave `out`; `out` is None where there was none."""
    if out is None:
        return grad_out
    masked = how.scratch("masked", tuple(out.shape), out)
    return torch.ops.aten.threshold_backward.grad_input(grad_out, out, 0.0, grad_input=masked)
