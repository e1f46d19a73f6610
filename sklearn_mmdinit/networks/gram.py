r"""The gram sampler: outputs of perturbed networks, drawn without the perturbed weights.

For the inputs H (B, n_in) of a linear layer in one network, :math:`\epsilon` adds noise to the
pre-activations. The columns of this noise are independent, and each is N(0, C) with

.. math:: C = (s^2 / n_{in}) H H^T + (s^2 / n_{out}) 1 1^T = L L^T.

L Z with a standard normal Z (B, n_out) has the same distribution, jointly over the mini-batch. The
backward pass uses the most likely epsilon that gives the noise,
:math:`E^T = (s^2 / n_{in}) H^T C^{-1} L Z`. The loss depends on epsilon only through the noise.
Given the noise, the mean of epsilon is this most likely one, because epsilon is Gaussian. So the
gradient is that of the functional sampler, averaged over all epsilon that give the same noise in
every layer: it is unbiased, and its variance is not larger.

In a later layer with few inputs and many rows the sampler draws epsilon itself, because epsilon has
fewer entries than the noise, and C is singular.

The sampler extends the local reparameterisation of Kingma, Salimans & Welling (2015, arXiv
1506.02557), which draws the noise of each input on its own. The extension is the matrix-normal
conditioning of Louizos & Welling (2016, arXiv 1603.04733).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from .._base.environment import in_single_precision
from .._base.mlp import MLP
from .._base.random_streams import StepRandom
from .._base.threads import chunked, refuse_second_derivative
from .noise import NUMBERS_ON_GPU, chunks_of_networks, paper_std, uses_batch_statistics

_DRAWING = nn.Dropout, nn.AlphaDropout, nn.RReLU  # in training mode
# Layers without parameters that compute each number of their input on its own.
_ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink),
    *(nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink, nn.Softshrink, nn.Threshold),
    *(nn.Identity, *_DRAWING),
)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

# A chunk is what one thread computes at a time. Its widest layer has this many activations: they
# fill a core's cache, and products still run at full rate. The paper's step has 12 chunks; 16 take
# 2 % longer.
_NUMBERS_IN_CACHE = 275_000
_ARRAYS_A_LAYER = 3  # normals, outputs and activations
# Weights are drawn directly if n_rows >= _MANY_ROWS * (n_in + 1), with 1 for the bias. This takes a
# third to a tenth of the time.
_MANY_ROWS = 2

# A pivot below this fraction of its diagonal entry is only rounding error: its row is a linear
# combination of the rows before it. Products of a few hundred float32 terms are good to about 1e-6.
_PIVOT_TOLERANCE = 4e-6
# This fraction of its diagonal is added to a singular C. With many rows the fraction is larger: it
# must exceed the rounding errors of pivots, which grow with the number of rows.
_RIDGE = 1e-5
# Added for rows of zeros: a fraction of the largest diagonal entry, and an absolute amount.
_LEAST = 1e-10, 1e-30


def has_hooks(module: nn.Module) -> bool:
    """Whether a user has added hooks to the passes of a module, or to its gradients."""
    hooked = any(getattr(part, name) for part in module.modules() for name in _HOOKS)
    return hooked or any(parameter._backward_hooks for parameter in module.parameters())


def gram_layers(module: nn.Module) -> list[Any]:
    """Layers of a module that the gram sampler serves, in their order; none for other modules.

    It serves an MLP, and an nn.Sequential of nn.Linear, elementwise layers, nn.BatchNorm1d and an
    nn.Flatten before the first nn.Linear, if no layer with weights occurs twice and the last is
    nn.Linear. What comes before the first nn.Linear is computed once, so it must not draw random
    numbers.
    """
    layers = [] if has_hooks(module) else list(_flat(module))
    linears = [i for i, layer in enumerate(layers) if type(layer) is nn.Linear]
    if not linears or linears[-1] != len(layers) - 1:
        return []
    before, after = layers[: linears[0]], layers[linears[0] :]
    known_before = all(type(layer) in (*_ELEMENTWISE, nn.Flatten) for layer in before)
    known_after = all(type(layer) in (*_ELEMENTWISE, nn.Linear, nn.BatchNorm1d) for layer in after)
    flat_rows = all((f.start_dim, f.end_dim) == (1, -1) for f in before if type(f) is nn.Flatten)
    draws = any(isinstance(layer, _DRAWING) and layer.training for layer in before)
    own_forward = any("forward" in vars(layer) for layer in (module, *layers))
    # A batch norm without affine=True has no parameter.
    norms = [id(layer) for layer in after if type(layer) is nn.BatchNorm1d]
    parameters = [id(p) for layer in layers for p in layer._parameters.values() if p is not None]
    used_once = all(len(set(ids)) == len(ids) for ids in (norms, parameters))
    is_served = known_before and known_after and flat_rows and used_once
    return layers if is_served and not (own_forward or draws) else []


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """Layers of an MLP or of nested nn.Sequential; any other module itself."""
    if type(module) is MLP:
        yield from module.layers()
    elif isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        for part in module:
            yield from _flat(part)
    else:
        yield module


def gram_logits(
    layers: Sequence[Any], X: torch.Tensor, n_copies: int, scale: float, random: StepRandom
) -> torch.Tensor:
    """Logits (K, B, d) of K networks around the chain of :func:`gram_layers` on X (B, ...).

    Differentiable once, with respect to the chain's parameters and X.
    """
    linears = [i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    before, after = layers[: linears[0]], layers[linears[0] :]
    linear = after[0]
    H = X.clone() if before else X  # an elementwise layer may work in place
    for layer in before:
        H = layer(H)
    L = None
    if not H.requires_grad:
        # All networks share these inputs, and therefore the mean and the factor of the noise.
        with torch.no_grad(), torch.autocast(H.device.type, enabled=False):
            L = noise_factor(H[None], *_stds(linear, scale))[0]
        H, after = linear(H), after[1:]
    n_rows, widths = len(X), [layers[i].out_features for i in linears]
    numbers = n_copies * sum(n_rows**2 + _ARRAYS_A_LAYER * n_rows * width for width in widths)
    if X.device.type == "cpu":
        n_chunks = math.ceil(n_copies * n_rows * max(n_rows, *widths) / _NUMBERS_IN_CACHE)
        n_chunks = 4 * math.ceil(n_chunks / 4) if n_chunks > 1 else 1  # for two or four threads
    else:
        n_chunks = math.ceil(numbers / NUMBERS_ON_GPU)
    logits = partial(_logits_of_chunk, after, H, L, scale)
    chunks = chunks_of_networks(logits, n_copies, n_chunks, numbers, random)
    parameters = [p for layer in after for p in layer.parameters()]
    result = chunked(lambda i: chunks[i](), len(chunks), [H, *parameters])
    return result.view(n_copies, n_rows, -1)


def _logits_of_chunk(
    layers: Sequence[nn.Module],
    H: torch.Tensor,
    L: torch.Tensor | None,
    scale: float,
    n_copies: int,
    random: StepRandom,
) -> torch.Tensor:
    """Logits (K B, d) of some of the networks.

    H (B, n) are the mean outputs of the first linear layer if L is given, and else its inputs.
    """
    if L is None:
        H = H.expand(n_copies, *H.shape).flatten(0, 1)
    else:
        with torch.autocast(H.device.type, enabled=False):
            H = _NoiseOnSharedInputs.apply(H, L, random.normal(n_copies, *H.shape))
    is_new = L is not None  # a linear layer's output, which a ReLU may change in place
    for layer in layers:
        if isinstance(layer, nn.Linear):
            H = _perturbed(layer, H.unflatten(0, (n_copies, -1)), scale, random)
        elif isinstance(layer, nn.BatchNorm1d) and uses_batch_statistics(layer):
            H = _normalized(layer, H, n_copies)
        elif type(layer) is nn.ReLU and is_new:
            H = H.relu_()
        else:
            H = layer(H)
        is_new = isinstance(layer, nn.Linear)
    return H


def _stds(layer: nn.Linear, scale: float) -> tuple[float, float]:
    """Standard deviations for weight and bias; 0 if one is not perturbed, or there is no bias."""
    weight, bias = (
        paper_std(p, scale) if p is not None and p.requires_grad else 0.0
        for p in (layer.weight, layer.bias)
    )
    return weight, bias


def noise_factor(H: torch.Tensor, weight_std: float, bias_std: float) -> torch.Tensor:
    """Cholesky factor (n, R, R) of the covariance of a layer's noise at its inputs (n, R, n_in)."""
    H = in_single_precision(H)  # a factorisation in half precision breaks down
    C = torch.bmm(H, H.mT).mul_(weight_std**2)
    return semidefinite_cholesky(C.add_(bias_std**2))


def semidefinite_cholesky(C: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of matrices C (n, R, R) that may be singular.

    C is singular when rows repeat, when a layer is dead on several rows, or when the batch is
    larger than the layer. Where the plain factorisation fails, a fraction of the diagonal is added.
    """
    if C.device.type != "cpu":  # to know which ones are singular, Python would wait for the GPU
        return _regularised_cholesky(C)
    L, info = torch.linalg.cholesky_ex(C)
    floor = C.diagonal(dim1=-2, dim2=-1) * _PIVOT_TOLERANCE
    # If the factorisation failed, L is not a factor, even if its diagonal is large.
    regular = (L.diagonal(dim1=-2, dim2=-1).square() > floor).all(dim=1) & (info == 0)
    if not bool(regular.all()):
        L[~regular] = _regularised_cholesky(C[~regular])
    return L


def _regularised_cholesky(C: torch.Tensor) -> torch.Tensor:
    """Factor of C plus a fraction of its diagonal; in float64, because some fail in float32."""
    ridge_share = max(_RIDGE, 2.0 * C.shape[-1] * torch.finfo(C.dtype).eps)
    diagonal = C.diagonal(dim1=-2, dim2=-1).double()
    least = diagonal.amax(dim=-1, keepdim=True) * _LEAST[0] + _LEAST[1]
    ridge = torch.diag_embed(diagonal * ridge_share + least)
    return torch.linalg.cholesky_ex(C + ridge)[0].to(C.dtype)


class _NoiseOnSharedInputs(torch.autograd.Function):
    """Outputs m + L Z (K R, n_out) of K networks with the same inputs, and so the same m and L."""

    @staticmethod
    def forward(ctx: Any, mean: torch.Tensor, L: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
        ctx.shape = Z.shape
        # A new tensor, not a view, because an in-place ReLU would copy a view.
        out = mean.new_empty(Z.shape[0] * Z.shape[1], Z.shape[2])
        if mean.dtype == L.dtype:
            torch.baddbmm(mean, L.expand(len(Z), -1, -1), Z.to(L.dtype), out=out.view(Z.shape))
        else:
            torch.add(mean, (L @ Z).to(mean.dtype), out=out.view(Z.shape))
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        return grad_outputs[0].view(ctx.shape).sum(0), None, None


def _perturbed(layer: nn.Linear, H: torch.Tensor, scale: float, random: StepRandom) -> torch.Tensor:
    """Outputs (K R, n_out) of K copies of a linear layer on H (K, R, n_in).

    The products run in the precision that autocast asks for, the factor in float32.
    """
    if _MANY_ROWS * (layer.in_features + 1) <= H.shape[1]:
        return _with_drawn_weights(layer, H, scale, random)
    device, dtype = H.device.type, layer.weight.dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    weight, bias = layer.weight.to(dtype), None if layer.bias is None else layer.bias.to(dtype)
    with torch.autocast(device, enabled=False):
        out: torch.Tensor = _GramLinear.apply(
            H.to(dtype), weight, bias, _stds(layer, scale), random
        )
    return out


def _with_drawn_weights(
    layer: nn.Linear, H: torch.Tensor, scale: float, random: StepRandom
) -> torch.Tensor:
    """As ``_perturbed``, but draws epsilon, which has fewer entries than the noise."""
    weight_std, bias_std = _stds(layer, scale)
    n_copies, dtype = len(H), layer.weight.dtype
    eps = random.normal(n_copies, *layer.weight.shape).mul_(weight_std)
    out = torch.bmm(H, (layer.weight + eps.to(dtype)).mT)
    if layer.bias is not None:
        eps = random.normal(n_copies, 1, layer.out_features).mul_(bias_std)
        out = out + (layer.bias + eps.to(dtype)).to(out.dtype)
    return out.flatten(0, 1)


class _GramLinear(torch.autograd.Function):
    """Outputs H W^T + b + L Z (K R, n_out) of K copies of a linear layer on H (K, R, n_in)."""

    @staticmethod
    def forward(
        ctx: Any,
        H: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        stds: tuple[float, float],
        random: StepRandom,
    ) -> torch.Tensor:
        L = noise_factor(H, *stds)
        Z = random.normal(*H.shape[:2], len(weight)).to(L.dtype)
        # One product by W for all copies; the noise is added in place.
        out = torch.mm(H.flatten(0, 1), weight.T)
        if out.dtype == L.dtype:
            out.view(Z.shape).baddbmm_(L, Z)
        else:
            out.view(Z.shape).add_(L @ Z)
        if bias is not None:
            out.add_(bias)
        ctx.save_for_backward(H, weight, Z, L)
        ctx.weight_std = stds[0]
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        H, weight, Z, L = ctx.saved_tensors
        G = grad_outputs[0].contiguous()
        grad_H = grad_weight = None
        if ctx.needs_input_grad[0]:
            # G (W + E) with E^T = weight_std^2 H^T C^{-1} L Z = weight_std^2 H^T L^{-T} Z.
            inner = torch.bmm(G.view(Z.shape).to(L.dtype), Z.mT)
            inner = torch.linalg.solve_triangular(L, inner, upper=False, left=False)
            grad_H = torch.mm(G, weight).view(H.shape)
            grad_H.baddbmm_(inner.to(H.dtype), H, alpha=ctx.weight_std**2)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.mm(G.T, H.flatten(0, 1))
        grad_bias = G.sum(0) if ctx.needs_input_grad[2] else None
        return grad_H, grad_weight, grad_bias, None, None


def _normalized(norm: nn.BatchNorm1d, H: torch.Tensor, n_copies: int) -> torch.Tensor:
    """Batch normalization of H (K R, n), each copy by its own rows, as in training mode."""
    grouped = H.unflatten(0, (n_copies, -1))
    variance, mean = torch.var_mean(grouped, dim=1, correction=0)
    factor, shift = factor_and_shift(norm, mean, variance)
    return (grouped * factor.unsqueeze(1) + shift.unsqueeze(1)).flatten(0, 1)


def factor_and_shift(
    norm: Any, mean: torch.Tensor, variance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Batch normalization by this mean and variance (..., n) as H * factor + shift."""
    factor = (variance + norm.eps).rsqrt()
    shift = -mean * factor
    if norm.affine:
        factor, shift = factor * norm.weight, shift * norm.weight + norm.bias
    return factor, shift
