r"""The Gram sampler: perturbed outputs drawn without drawing the perturbed weights.

For the inputs H (B, n_in) of one network the columns of what epsilon adds to a layer's
pre-activations are independent N(0, C),

.. math:: C = (s^2 / n_{in}) H H^T + (s^2 / n_{out}) 1 1^T = L L^T,

so that L Z with Z (B, n_out) standard normal has their law, jointly over the mini-batch.
The backward pass uses the most likely epsilon that explains the drawn noise,
:math:`E^T = (s^2 / n_{in}) H^T C^{-1} L Z`. Since the loss sees epsilon through the noise
alone, this is the conditional expectation of the direct gradient given all noises: unbiased,
and of no larger variance.

It extends the local reparameterisation of Kingma, Salimans & Welling (2015, arXiv
1506.02557), which draws every input on its own, by the matrix-normal conditioning of Louizos
& Welling (2016, arXiv 1603.04733).
"""

from __future__ import annotations

from typing import Any

import torch

from .law import bias_std, weight_std
from .layer import Sampling, before_relu, factor, parameter_gradients, product
from .semidefinite import inverse_factor, semidefinite_cholesky

__all__ = ["noise_factor", "sample_gram", "sample_gram_around"]


def noise_factor(
    H: torch.Tensor, weight_std: float, bias_std: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The factor L of each network's noise, and which of its rows are independent.

    Parameters
    ----------
    H : Tensor of shape (n, B, n_in)
        Inputs of a layer.
    weight_std, bias_std : float
        Standard deviations of the perturbations; 0 where there is none.

    Returns
    -------
    L : Tensor of shape (n, B, B)
    independent : Tensor of shape (n, B), bool, or None
        As :func:`sklearn_mmdinit._sampling.semidefinite.semidefinite_cholesky` has them.
    """
    C = torch.bmm(H, H.mT).mul_(weight_std**2)
    return semidefinite_cholesky(C.add_(bias_std**2))


def sample_gram_around(mean: torch.Tensor, L: torch.Tensor, how: Sampling) -> torch.Tensor:
    """Outputs of K copies of a layer that have their inputs in common, as the first one's.

    Parameters
    ----------
    mean : Tensor of shape (1, B, n_out)
        Outputs at theta0; gradients flow here.
    L : Tensor of shape (1, B, B)
        From :func:`noise_factor`.
    how : Sampling
        Number of copies, source of the draws.

    Returns
    -------
    Tensor of shape (K, B, n_out)
    """
    out: torch.Tensor = _GramAround.apply(mean, L, how)
    return out


def sample_gram(
    H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, how: Sampling
) -> torch.Tensor:
    """Outputs of K copies of a layer, from B normals a unit and copy.

    Takes and returns what :func:`sklearn_mmdinit._sampling.direct.sample_direct` does, but each
    copy must have inputs of its own.
    """
    out: torch.Tensor = _GramLinear.apply(H, weight, bias, how)
    return out


class _GramAround(torch.autograd.Function):
    """m + L Z, and the ReLU after it where asked."""

    @staticmethod
    def forward(ctx: Any, mean: torch.Tensor, L: torch.Tensor, how: Sampling) -> torch.Tensor:
        shape = (how.n_networks, *mean.shape[1:])
        Z = how.random.normal(*shape, out=how.scratch("normals", shape, mean))
        out = how.kept("activations", shape, mean)
        torch.baddbmm(mean.expand(shape), L.expand(len(Z), -1, -1), Z, out=out)
        if how.relu:
            out.relu_()
        ctx.save_for_backward(out if how.relu else None)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        return before_relu(grad_outputs[0], out, ctx.how).sum(0, keepdim=True), None, None


class _GramLinear(torch.autograd.Function):
    """H W^T + b + L Z, and the ReLU after it where asked."""

    @staticmethod
    def forward(
        ctx: Any, H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, how: Sampling
    ) -> torch.Tensor:
        n_out = len(weight)
        shape = (*H.shape[:2], n_out)
        stds = weight_std(H.shape[2], how.scale), bias_std(n_out, how.scale)
        L, independent = noise_factor(H, *stds)
        Z = how.random.normal(*shape, out=how.kept("normals", shape, H))
        out = how.kept("activations", shape, H)
        # One product by W for many networks.
        inputs, weights = factor("inputs", H.flatten(0, 1), how), factor("weight", weight, how)
        product(inputs, weights.mT, out.flatten(0, 1), how)
        out.baddbmm_(L, Z).add_(bias)
        if how.relu:
            out.relu_()
        inverse = inverse_factor(L, independent) if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(H, weight, Z, inverse, out if how.relu else None)
        ctx.how = how
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, weight, Z, inverse, out = ctx.saved_tensors
        how = ctx.how
        G = before_relu(grad_outputs[0], out, how)
        grad_H, rounded = None, factor("output gradient", G.flatten(0, 1), how)
        if ctx.needs_input_grad[0]:
            # G (W + E) with E^T = (s^2 / n_in) H^T C^{-1} L Z = (s^2 / n_in) H^T L^{-T} Z.
            inner = torch.bmm(torch.bmm(G, Z.mT), inverse)
            grad_H = how.scratch("gradient", tuple(H.shape), H)
            product(rounded, factor("weight", weight, how), grad_H.flatten(0, 1), how)
            grad_H.baddbmm_(inner, H, alpha=weight_std(H.shape[2], how.scale) ** 2)
        return grad_H, *parameter_gradients(G, H, how, rounded), None
