r"""The Gram sampler: perturbed outputs drawn without drawing the perturbed weights.

For the inputs H (R, n_in) of one network the columns of what epsilon adds to a layer's
pre-activations are independent N(0, C),

.. math:: C = (s^2 / n_{in}) H H^T + (s^2 / n_{out}) 1 1^T = L L^T,

so that L Z with Z (R, n_out) standard normal has their law, jointly over the mini-batch.
The backward pass uses the most likely epsilon that explains the drawn noise,
:math:`E^T = (s^2 / n_{in}) H^T C^{-1} L Z`. Since the loss sees epsilon through the noise
alone, this is the conditional expectation of the direct gradient given all noises: unbiased,
and of no larger variance.

It extends the local reparameterisation of Kingma, Salimans & Welling (2015, arXiv
1506.02557), which draws every input on its own, by the matrix-normal conditioning of Louizos
& Welling (2016, arXiv 1603.04733).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._base.random_streams import StepRandom

# What gram does besides the draw, in draws of a normal: the products of two (B, n) matrices,
# a unit of n, and the factor of a (B, B) matrix, an entry. Measured on an x86-64 core.
_PRODUCT, _FACTOR = 0.014, 10.0

# A pivot below this fraction of its diagonal entry is rounding: the row is a combination of
# the rows before it. Float32 products of a few hundred terms are good to about 1e-6.
_PIVOT_TOLERANCE = 4e-6
# What is added to the diagonal then, as a fraction of it: larger than the pivots that rounding
# leaves, which grow with the number of rows, so that no root is of a negative number.
_RIDGE = 1e-5
# What a row of zeros gets, of the largest entry of the diagonal and beyond: a pivot all the same.
_LEAST = 1e-10, 1e-30

# Gives the memory of a role, of a shape and like a tensor, until the backward pass; with
# passing=True until the same thread asks for it again.
Empty = Callable[..., torch.Tensor]


def gram_is_cheaper(n_rows: int, n_in: int, n_out: int, *, first: bool) -> bool:
    """Whether a copy of a layer costs less by gram, in draws of a normal."""
    direct = n_out * (n_in + 1)
    gram = n_out * n_rows
    # The copies of the first layer share their inputs, and so the factor.
    rest = 0.0 if first else n_rows**2 * ((n_in + n_out) * _PRODUCT + _FACTOR)
    return gram + rest < direct


def noise_factor(H: torch.Tensor, weight_std: float, bias_std: float) -> torch.Tensor:
    """Factor L (n, R, R) of the noise on inputs H (n, R, n_in)."""
    C = torch.bmm(H, H.mT).mul_(weight_std**2)
    return semidefinite_cholesky(C.add_(bias_std**2))


def semidefinite_cholesky(C: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of matrices C (n, R, R) that may be singular.

    Covariances are singular when inputs repeat, when a layer is dead on several inputs, or
    when the batch is larger than the layer. Where the plain factorisation holds, it serves; where
    pivots vanish, that of C with a hundred-thousandth of its diagonal added.
    """
    if C.device.type != "cpu":  # to learn which are singular would be to wait for the device
        return _regularised_cholesky(C)
    L, info = torch.linalg.cholesky_ex(C)
    floor = C.diagonal(dim1=-2, dim2=-1) * _PIVOT_TOLERANCE
    # Where the plain factorisation broke down L is not a factor and its diagonal says nothing.
    regular = (L.diagonal(dim1=-2, dim2=-1).square() > floor).all(dim=1) & (info == 0)
    if not bool(regular.all()):
        L[~regular] = _regularised_cholesky(C[~regular])
    return L


def _regularised_cholesky(C: torch.Tensor) -> torch.Tensor:
    diagonal, eps = C.diagonal(dim1=-2, dim2=-1), torch.finfo(C.dtype).eps
    ridge = diagonal * max(_RIDGE, 2.0 * C.shape[-1] * eps)
    least = diagonal.amax(dim=-1, keepdim=True) * _LEAST[0] + _LEAST[1]
    return torch.linalg.cholesky_ex(C + torch.diag_embed(ridge + least))[0]


def _divided_by(B: torch.Tensor, L: torch.Tensor) -> torch.Tensor:
    """B L^{-1} for matrices B (n, R, R)."""
    return torch.linalg.solve_triangular(L, B, upper=False, left=False)


class GramAround(torch.autograd.Function):
    """Outputs m + L Z (K R, n_out) of K copies that have their inputs in common, and so m and L.

    `mean` (R, n_out) are the outputs at theta0, L (R, R) is of :func:`noise_factor`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: torch.Tensor,
        L: torch.Tensor,
        n_copies: int,
        random: StepRandom,
        empty: Empty,
    ) -> torch.Tensor:
        ctx.shape = (n_copies, *mean.shape)
        Z = random.normal(out=empty("normals", ctx.shape, mean, passing=True))
        out = empty("outputs", (n_copies * len(mean), mean.shape[1]), mean)
        torch.baddbmm(mean, L.expand(n_copies, -1, -1), Z, out=out.view(ctx.shape))
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grad_outputs[0].reshape(ctx.shape).sum(0), None, None, None, None


class GramLinear(torch.autograd.Function):
    """Outputs H W^T + b + L Z (K R, n_out) of K copies of a linear layer on H (K, R, n_in).

    The noise is added where the outputs are: one memory for both, in a core's cache.
    """

    @staticmethod
    def forward(
        ctx: Any,
        H: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stds: tuple[float, float],
        random: StepRandom,
        empty: Empty,
    ) -> torch.Tensor:
        (K, n_rows, _), n_out = H.shape, len(weight)
        L = noise_factor(H, *stds)
        Z = random.normal(out=empty("normals", (K, n_rows, n_out), H))
        out = empty("outputs", (K * n_rows, n_out), H)
        # One product by W for all copies.
        torch.mm(H.flatten(0, 1), weight.T, out=out)
        out.view(Z.shape).baddbmm_(L, Z)
        if bias is not None:
            out.add_(bias)
        ctx.save_for_backward(H, weight, Z, L)
        ctx.weight_std, ctx.empty = stds[0], empty
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, weight, Z, L = ctx.saved_tensors
        G = grad_outputs[0].contiguous()
        grad_H = None
        if ctx.needs_input_grad[0]:
            # G (W + E) with E^T = weight_std^2 H^T C^{-1} L Z = weight_std^2 H^T L^{-T} Z.
            inner = _divided_by(torch.bmm(G.view(Z.shape), Z.mT), L)
            # In the memory of the normals, which have done their part, where it is large enough.
            grad_H = (
                Z.flatten()[: H.numel()].view(H.shape)
                if H.numel() <= Z.numel()
                else ctx.empty("gradient", tuple(H.shape), H, passing=True)
            )
            torch.mm(G, weight, out=grad_H.flatten(0, 1))
            grad_H.baddbmm_(inner, H, alpha=ctx.weight_std**2)
        grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_weight = ctx.empty("weight gradient", tuple(weight.shape), weight, passing=True)
            torch.mm(G.T, H.flatten(0, 1), out=grad_weight)
        grad_bias = G.sum(0) if ctx.needs_input_grad[2] else None
        return grad_H, grad_weight, grad_bias, None, None, None


def gram_noise(
    patches: torch.Tensor,
    n_copies: int,
    n_out: int,
    stds: tuple[float, float],
    random: StepRandom,
) -> torch.Tensor:
    """Noise (K B, P, n_out) of a layer whose patches (n, B, P, groups, n_in) weights multiply.

    The patches are those of all K copies (n = K) or common to them (n = 1).
    """
    n, B, P, groups, n_in = patches.shape
    H = patches.permute(0, 3, 1, 2, 4).reshape(n * groups, B * P, n_in)
    units = n_out // groups
    if n == n_copies:
        noise = _GramNoise.apply(H, units, stds, random)
    else:
        L = noise_factor(H, *stds)
        noise = L @ random.normal(n_copies, groups, B * P, units)
    noise = noise.view(n_copies, groups, B, P, units).permute(0, 2, 3, 1, 4)
    return noise.reshape(n_copies * B, P, n_out)


class _GramNoise(torch.autograd.Function):
    """L Z of each matrix H, (n, R, units)."""

    @staticmethod
    def forward(
        ctx: Any, H: torch.Tensor, units: int, stds: tuple[float, float], random: StepRandom
    ) -> torch.Tensor:
        L = noise_factor(H, *stds)
        Z = random.normal(*H.shape[:2], units)
        ctx.save_for_backward(H, Z, L)
        ctx.weight_std = stds[0]
        return torch.bmm(L, Z)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, Z, L = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        # G E with E^T = weight_std^2 H^T L^{-T} Z.
        inner = _divided_by(torch.bmm(grad_outputs[0], Z.mT), L)
        return torch.bmm(inner, H).mul_(ctx.weight_std**2), None, None, None
