"""The direct sampler: each copy of a layer has its own weights, as the paper says it."""

from __future__ import annotations

from typing import Any

import torch

from .law import bias_std, weight_std
from .layer import Sampling, before_relu, parameter_gradients

__all__ = ["sample_direct"]


def sample_direct(
    H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, how: Sampling
) -> torch.Tensor:
    """Outputs of K copies of a layer, each with its own weights and biases.

    Parameters
    ----------
    H : Tensor of shape (K, B, n_in) or (1, B, n_in)
        Inputs of each copy, or of all; then no gradient flows to them.
    weight : Tensor of shape (n_out, n_in)
        Weights at theta0.
    bias : Tensor of shape (n_out,)
        Biases at theta0.
    how : Sampling
        Number of copies, scale, source of the draws.

    Returns
    -------
    Tensor of shape (K, B, n_out)
        Differentiable with respect to the three tensors.
    """
    out: torch.Tensor = _DirectLinear.apply(H, weight, bias, how)
    return out


class _DirectLinear(torch.autograd.Function):
    """H (W + E)^T + b + e, and the ReLU after it where asked.

    All copies have W and b in common: their gradient is one product, with no gradient of each
    copy's weights in between.
    """

    @staticmethod
    def forward(
        ctx: Any, H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, how: Sampling
    ) -> torch.Tensor:
        (n_out, n_in), K = weight.shape, how.n_networks
        weights = how.random.normal(K, n_out, n_in, out=how.kept("weights", (K, n_out, n_in), H))
        weights.mul_(weight_std(n_in, how.scale)).add_(weight)
        biases = how.random.normal(K, 1, n_out).mul_(bias_std(n_out, how.scale)).add_(bias)
        out = how.kept("activations", (K, H.shape[1], n_out), H)
        torch.baddbmm(biases, H.expand(K, -1, -1), weights.mT, out=out)
        if how.relu:
            out.relu_()
        ctx.save_for_backward(H, weights, out if how.relu else None)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, weights, out = ctx.saved_tensors
        G = before_relu(grad_outputs[0], out, ctx.how)
        grad_H = None
        if ctx.needs_input_grad[0]:
            grad_H = torch.bmm(G, weights, out=ctx.how.scratch("gradient", tuple(H.shape), H))
        if len(H) == 1:
            G = G.sum(0, keepdim=True)
        return grad_H, *parameter_gradients(G, H, ctx.how), None
