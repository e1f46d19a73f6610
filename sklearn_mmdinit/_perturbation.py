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
from itertools import pairwise
from typing import Any

import torch

from ._network import ACTIVATIONS, MLP
from ._random import StepRandom
from ._threads import one_thread

__all__ = [
    "SAMPLERS",
    "Workspace",
    "bias_std",
    "perturbed_logits",
    "semidefinite_cholesky",
    "weight_std",
]

# A pivot below this fraction of its diagonal entry is rounding: the row is a combination of
# the rows before it. Float32 products of a few hundred terms are good to about 1e-6.
_PIVOT_TOLERANCE = 4e-6

# Numbers of one activation that are worked on at a time on a CPU: 2 MB of float32.
_CACHED_NUMBERS = 1 << 19


Empty = Callable[[str, tuple[int, ...], torch.Tensor], torch.Tensor]


def _fresh(role: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(shape)


class Workspace:
    """Buffers of one step that the next step overwrites.

    A step's activations and gradients are some 75 MB at the paper's size. Returned
    to the system and asked for again every step they would come back as pages to be zeroed,
    which costs a quarter of the step.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[int, str], torch.Tensor] = {}

    def layer(self, layer: int) -> Empty:
        """The allocator of one layer: a function of role, shape and a tensor alike."""

        def empty(role: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
            buffer = self._buffers.get((layer, role))
            if buffer is None or buffer.shape != shape or buffer.device != like.device:
                buffer = self._buffers[layer, role] = like.new_empty(shape)
            return buffer

        return empty


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
    # LAPACK shares hundreds of small matrices among threads badly: no faster on an idle
    # machine, and a thousand times slower where another process holds a core.
    with one_thread():
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
    """K perturbed copies of a layer, H W^T + b + L Z, and the ReLU after it where asked.

    Networks are taken a few at a time, so that what a layer does to them happens in the
    processor's cache: on two cores memory is slower than the matrix products it feeds.
    """

    @staticmethod
    def forward(
        ctx: Any,
        H: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        n_networks: int,
        scale: float,
        random: StepRandom,
        relu: bool,
        empty: Empty,
    ) -> torch.Tensor:
        # H is (K, B, n_in), or (1, B, n_in) where all networks share it: one factorisation.
        n_out, n_in = weight.shape
        shared, n_rows = len(H) == 1, H.shape[1]
        C = torch.bmm(H, H.mT).mul_(weight_std(n_in, scale) ** 2)
        C += bias_std(n_out, scale) ** 2
        L, independent = semidefinite_cholesky(C)
        mean = torch.nn.functional.linear(H, weight, bias) if shared else None
        Z = random.normal(n_networks, n_rows, n_out)
        out = empty("activations", (n_networks, n_rows, n_out), H)
        for part in _parts(n_networks, n_rows * n_out, H.device):
            target = out[part]
            if mean is not None:
                factor = L.expand(len(target), -1, -1)
                torch.baddbmm(mean.expand_as(target), factor, Z[part], out=target)
            else:
                # One product by W for many networks.
                torch.mm(H[part].flatten(0, 1), weight.mT, out=target.flatten(0, 1))
                target.baddbmm_(L[part], Z[part]).add_(bias)
            if relu:
                target.relu_()
        inverse = _inverse_factor(L, independent) if ctx.needs_input_grad[0] else None
        ctx.save_for_backward(H, weight, Z, inverse, out if relu else None)
        ctx.scale, ctx.empty = scale, empty
        return out

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        H, weight, Z, inverse, out = ctx.saved_tensors
        (grad_out,) = grad_outputs
        n_networks, n_rows, n_out = Z.shape
        n_in, shared = weight.shape[1], len(H) == 1
        grad_weight, grad_bias = torch.zeros_like(weight), weight.new_zeros(n_out)
        grad_H = ctx.empty("gradient", H.shape, H) if ctx.needs_input_grad[0] else None
        noise_weight = weight_std(n_in, ctx.scale) ** 2
        for part in _parts(n_networks, n_rows * n_out, H.device):
            G = grad_out[part]
            if out is not None:
                G = torch.ops.aten.threshold_backward(G, out[part], 0.0)
            rows = slice(None) if shared else part
            G_mean = G.sum(0, keepdim=True) if shared else G
            flat = G_mean.flatten(0, 1)
            grad_weight.addmm_(flat.mT, H[rows].flatten(0, 1))
            grad_bias += flat.sum(0)
            if grad_H is not None:
                # G (W + E) with E^T = (s^2 / n_in) H^T C^{-1} L Z = (s^2 / n_in) H^T L^{-T} Z.
                inner = torch.bmm(G, Z[part].mT)
                inner = torch.bmm(inner, inverse[rows].expand_as(inner))
                if shared:
                    inner = inner.sum(0, keepdim=True)
                target = grad_H[rows]
                torch.mm(flat, weight, out=target.flatten(0, 1))
                target.baddbmm_(inner, H[rows], alpha=noise_weight)
        return grad_H, grad_weight, grad_bias, None, None, None, None, None


def _inverse_factor(L: torch.Tensor, independent: torch.Tensor) -> torch.Tensor:
    """Inverse of L on the independent rows, 0 for the others.

    The noise of a dependent row follows from the rows before it, and adds nothing to what
    they say of epsilon.
    """
    factor = L + torch.diag_embed((~independent).to(L.dtype))
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
    with one_thread():  # as the factorisation
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
    return inverse * independent[:, :, None]


def _parts(n_networks: int, size: int, device: torch.device) -> list[slice]:
    """Slices of networks whose activations, of `size` numbers each, fit a CPU's cache."""
    n_parts = math.ceil(n_networks * size / _CACHED_NUMBERS) if device.type == "cpu" else 1
    n = math.ceil(n_networks / n_parts)
    return [slice(start, start + n) for start in range(0, n_networks, n)]


def _gram(
    H: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
    relu: bool,
    empty: Empty,
) -> torch.Tensor:
    out: torch.Tensor = _GramLinear.apply(H, weight, bias, n_networks, scale, random, relu, empty)
    return out


def _direct(
    H: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
    relu: bool,
    empty: Empty,
) -> torch.Tensor:
    n_out, n_in = weight.shape
    weights = random.normal(n_networks, n_out, n_in).mul_(weight_std(n_in, scale)) + weight
    biases = random.normal(n_networks, 1, n_out).mul_(bias_std(n_out, scale)) + bias
    out = torch.baddbmm(biases, H.expand(n_networks, -1, -1), weights.mT)
    return out.relu() if relu else out


def _auto(H: torch.Tensor, weight: torch.Tensor, *args: Any) -> torch.Tensor:
    # An output unit costs B normals by gram and n_in + 1 by direct.
    sample = _gram if H.shape[1] < weight.shape[1] + 1 else _direct
    return sample(H, weight, *args)


SAMPLERS: dict[str, Callable[..., torch.Tensor]] = {
    "auto": _auto,
    "direct": _direct,
    "gram": _gram,
}


def _n_gram_normals(module: MLP, n_rows: int, n_networks: int, sampler: str) -> int:
    """Normals of the layers drawn by gram, all that is worth drawing ahead of its use."""
    widths = module.architecture.widths
    layers = pairwise(widths)
    n_out = sum(out for n_in, out in layers if sampler == "gram" or n_rows < n_in + 1)
    return n_networks * n_rows * n_out


def _normalise(H: torch.Tensor, norm: torch.nn.BatchNorm1d) -> torch.Tensor:
    # Each perturbed network normalises by its own mini-batch, as a network in training does.
    variance, mean = torch.var_mean(H, dim=1, correction=0, keepdim=True)
    return (H - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias


def perturbed_logits(
    module: MLP,
    X: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
    sampler: str = "auto",
    collect: Callable[[torch.Tensor], None] | None = None,
    workspace: Workspace | None = None,
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
    workspace : Workspace, default=None
        Buffers to reuse. The result and its graph are valid until the next call with it.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
        Logits, one network a slice.
    """
    sample = SAMPLERS[sampler]
    if sampler != "direct":
        random.reserve(_n_gram_normals(module, len(X), n_networks, sampler))
    batch_norm, activation = module.architecture.batch_norm, module.architecture.activation
    fused = activation == "relu" and not batch_norm
    H = X.unsqueeze(0)
    for layer, linear in enumerate(module.linear_layers[:-1]):
        empty = workspace.layer(layer) if workspace else _fresh
        H = sample(H, linear.weight, linear.bias, n_networks, scale, random, fused, empty)
        if batch_norm:
            H = _normalise(H, module.norm_layers[layer])
        if not fused:
            H = ACTIVATIONS[activation].function(H)
        if collect is not None:
            collect(H)
    last = module.linear_layers[-1]
    return sample(H, last.weight, last.bias, n_networks, scale, random, False, _fresh)
