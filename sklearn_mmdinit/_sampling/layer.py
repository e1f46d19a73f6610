"""One layer of the perturbed networks: what its samplers are told, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._compute import Empty, StepRandom, fresh

__all__ = ["Sampling", "before_relu", "parameter_gradients"]


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
    """

    n_networks: int
    scale: float
    random: StepRandom
    relu: bool = False
    layer: int = 0
    kept: Empty = fresh
    scratch: Empty = fresh


def parameter_gradients(
    G: torch.Tensor, H: torch.Tensor, how: Sampling
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

    Returns
    -------
    weight : Tensor of shape (n_out, n_in)
    bias : Tensor of shape (n_out,)
    """
    flat = G.flatten(0, 1)
    # Each layer's own: they live until those of all layers are there.
    out = how.scratch(f"weight gradient {how.layer}", (G.shape[2], H.shape[2]), H)
    return torch.mm(flat.mT, H.flatten(0, 1), out=out), flat.sum(0)


def before_relu(grad_out: torch.Tensor, out: torch.Tensor | None, how: Sampling) -> torch.Tensor:
    """The gradient before the ReLU that gave `out`; `out` is None where there was none."""
    if out is None:
        return grad_out
    masked = how.scratch("masked", tuple(out.shape), out)
    return torch.ops.aten.threshold_backward.grad_input(grad_out, out, 0.0, grad_input=masked)
