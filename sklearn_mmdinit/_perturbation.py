r"""The law of perturbed networks and two samplers of it.

A perturbed network adds :math:`\epsilon \sim N(0, \Sigma)` to theta0, with standard
deviation :math:`s / \sqrt{n_{in}}` for a weight and :math:`s / \sqrt{n_{out}}` for a bias.

``direct`` draws epsilon. ``gram`` draws what epsilon adds to a layer's pre-activations: for
the inputs H (B, n_in) of one network its columns are independent N(0, C),

.. math:: C = (s^2 / n_{in}) H H^T + (s^2 / n_{out}) 1 1^T = L L^T,

so that L Z with Z (B, n_out) standard normal has the same law, jointly over the mini-batch.
The backward pass of ``gram`` uses the most likely epsilon that explains the drawn noise,
:math:`E^T = (s^2 / n_{in}) H^T C^{-1} L Z`. Since the loss sees epsilon through the noise
alone, this is the conditional expectation of the direct gradient given all noises: unbiased,
and of no larger variance.

The Gram form extends the local reparameterisation of Kingma, Salimans & Welling (2015,
arXiv 1506.02557), which draws every input on its own, by the matrix-normal conditioning of
Louizos & Welling (2016, arXiv 1603.04733).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ._network import ACTIVATIONS, MLP, Activation
from ._random import StepRandom

__all__ = [
    "SAMPLERS",
    "bias_std",
    "perturbed_logits",
    "semidefinite_cholesky",
    "weight_std",
]

# A pivot below this fraction of its diagonal entry is rounding: the row is a combination of
# the rows before it. Float32 products of a few hundred terms are good to about 1e-6.
_PIVOT_TOLERANCE = 4e-6


def weight_std(n_in: int, scale: float) -> float:
    """Standard deviation of the perturbation of one weight, s / sqrt(n_in)."""
    return scale / math.sqrt(n_in)


def bias_std(n_out: int, scale: float) -> float:
    """Standard deviation of the perturbation of one bias, s / sqrt(n_out)."""
    return scale / math.sqrt(n_out)


def semidefinite_cholesky(C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cholesky factor of matrices that may be singular.

    Covariances are singular when inputs repeat, when a layer is dead on several inputs, or
    when the batch is larger than the layer. The plain factorisation serves where it holds.
    Elsewhere a vanishing pivot sets its column to zero, which gives dependent rows exactly
    their combination of the earlier ones, with no jitter added to any matrix.

    Parameters
    ----------
    C : Tensor of shape (n, B, B)
        Positive semi-definite matrices.

    Returns
    -------
    L : Tensor of shape (n, B, B)
        Lower triangular with L L^T = C up to rounding.
    independent : Tensor of shape (n, B), bool
        Which rows have a pivot of their own.
    """
    diagonal = C.diagonal(dim1=-2, dim2=-1)
    floor = diagonal * _PIVOT_TOLERANCE
    L, _ = torch.linalg.cholesky_ex(C)
    pivots = L.diagonal(dim1=-2, dim2=-1).square()
    # Where the plain factorisation broke down L is not a factor and may hold NaN: the
    # comparison is false for NaN too.
    if bool((pivots > floor).all()):
        return L, torch.ones_like(diagonal, dtype=torch.bool)
    return _pivot_by_pivot(C, floor)


def _pivot_by_pivot(C: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rest = C.clone()
    L = torch.zeros_like(C)
    independent = torch.zeros(C.shape[:2], dtype=torch.bool, device=C.device)
    for j in range(C.shape[-1]):
        pivot = rest[:, j, j]
        independent[:, j] = pivot > floor[:, j]
        root = torch.where(independent[:, j], pivot, torch.ones_like(pivot)).sqrt()
        column = rest[:, j:, j] / root[:, None] * independent[:, j, None]
        L[:, j:, j] = column
        rest[:, j:, j:] -= column[:, :, None] * column[:, None, :]
    return L, independent


class _GramLinear(torch.autograd.Function):
    """Pre-activations H W^T + b + L Z of K perturbed copies of a layer."""

    @staticmethod
    def forward(
        ctx: Any,
        H: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        Z: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        # H is (K, B, n_in), or (1, B, n_in) where all networks share it: one factorisation.
        n_out, n_in = weight.shape
        C = torch.bmm(H, H.mT).mul_(weight_std(n_in, scale) ** 2)
        C += bias_std(n_out, scale) ** 2
        L, independent = semidefinite_cholesky(C)
        # One product by W for all networks.
        mean = torch.addmm(bias, H.flatten(0, 1), weight.mT).view(*H.shape[:2], n_out)
        out = torch.baddbmm(mean.expand(Z.shape), L.expand(len(Z), -1, -1), Z)
        ctx.save_for_backward(H, weight, Z, L, independent)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, weight, Z, L, independent = ctx.saved_tensors
        (G,) = grad_outputs
        G_shared = G if len(H) == len(G) else G.sum(0, keepdim=True)
        flat = G_shared.flatten(0, 1)
        grad_weight = flat.mT @ H.flatten(0, 1)
        grad_bias = flat.sum(0)
        grad_H = None
        if ctx.needs_input_grad[0]:
            # G (W + E) with E^T = (s^2 / n_in) H^T C^{-1} L Z. On the independent rows
            # C^{-1} L Z = L^{-T} Z; the others add nothing to what they already say.
            factor = L + torch.diag_embed((~independent).to(L.dtype))
            inner = torch.bmm(G, Z.mT) * independent[:, None, :]
            inner = torch.linalg.solve_triangular(factor, inner, upper=False, left=False)
            if len(H) == 1:
                inner = inner.sum(0, keepdim=True)
            grad_H = (flat @ weight).view(H.shape)
            grad_H.baddbmm_(inner, H, alpha=weight_std(weight.shape[1], ctx.scale) ** 2)
        return grad_H, grad_weight, grad_bias, None, None


def _gram(
    H: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    Z = random.normal(n_networks, H.shape[1], weight.shape[0])
    out: torch.Tensor = _GramLinear.apply(H, weight, bias, Z, scale)
    return out


def _direct(
    H: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    n_out, n_in = weight.shape
    weights = random.normal(n_networks, n_out, n_in).mul_(weight_std(n_in, scale)) + weight
    biases = random.normal(n_networks, 1, n_out).mul_(bias_std(n_out, scale)) + bias
    return torch.baddbmm(biases, H.expand(n_networks, -1, -1), weights.mT)


def _auto(
    H: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    # An output unit costs B normals by gram and n_in + 1 by direct.
    sampler = _gram if H.shape[1] < weight.shape[1] + 1 else _direct
    return sampler(H, weight, bias, n_networks, scale, random)


SAMPLERS: dict[str, Callable[..., torch.Tensor]] = {
    "auto": _auto,
    "direct": _direct,
    "gram": _gram,
}


def _normalise(H: torch.Tensor, norm: torch.nn.BatchNorm1d) -> torch.Tensor:
    # Each perturbed network normalises by its own mini-batch, as a network in training does.
    variance, mean = torch.var_mean(H, dim=1, correction=0, keepdim=True)
    return (H - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias


def _activate(H: torch.Tensor, activation: Activation) -> torch.Tensor:
    # ReLU's gradient needs only its output, so the pre-activations can be overwritten.
    return H.relu_() if activation.function is torch.relu else activation.function(H)


def perturbed_logits(
    module: MLP,
    X: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
    sampler: str = "auto",
    collect: Callable[[torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """Logits of K networks around theta0 on one mini-batch.

    Weights and biases of the linear layers are perturbed; the scale and shift of batch
    normalisation are not.

    Parameters
    ----------
    module : MLP
        The network at theta0; gradients flow to its parameters.
    X : Tensor of shape (B, n_features)
        Mini-batch.
    n_networks : int
        K.
    scale : float
        The paper's s.
    random : StepRandom
        Source of the perturbations.
    sampler : {"auto", "direct", "gram"}, default="auto"
        Key of :data:`SAMPLERS`; all have the same law.
    collect : callable, default=None
        Called with the activations (K, B, width) of each hidden layer.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
        Logits, one network a slice.
    """
    sample = SAMPLERS[sampler]
    activation = ACTIVATIONS[module.architecture.activation]
    H = X.unsqueeze(0)
    for layer, linear in enumerate(module.linears):
        H = sample(H, linear.weight, linear.bias, n_networks, scale, random)
        if layer < len(module.linears) - 1:
            if module.architecture.batch_norm:
                H = _normalise(H, module.norms[layer])
            H = _activate(H, activation)
            if collect is not None:
                collect(H)
    return H
