r"""Networks around theta0: the predictions of K perturbed copies on one mini-batch.

A perturbed network adds :math:`\epsilon \sim N(0, \Sigma)` to theta0, with standard
deviation :math:`s / \sqrt{n_{in}}` for a weight and :math:`s / \sqrt{n_{out}}` for a bias.
Of the two samplers of the same law ``direct`` draws epsilon, and ``gram`` draws what epsilon
adds to a layer's pre-activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from ._compute import Empty, StepRandom, Workspace, concatenated, fresh
from ._direct import sample_direct
from ._gram import noise_factor, sample_gram, sample_gram_around
from ._network import ACTIVATIONS, BATCH_NORM_EPS, MLP, Architecture
from ._sampling import Sampling

__all__ = ["SAMPLERS", "layers_by_gram", "perturbed_logits"]

SAMPLERS = ("auto", "direct", "gram")

# What gram does besides the draw, in draws of a normal: the products of two (B, n) matrices,
# a unit of n, and the factor of a (B, B) matrix, an entry. Measured on an x86-64 core.
_PRODUCT, _FACTOR = 0.014, 10.0

# Numbers of the widest layer's activations in a part: with what the layers before and after
# it need they fill a core's cache, and are enough for matrix products at full rate.
_NUMBERS_A_PART = 1 << 18


def perturbed_logits(
    module: MLP,
    X: torch.Tensor,
    n_networks: int,
    scale: float,
    random: StepRandom,
    sampler: str = "auto",
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
        All have the same law; "auto" takes the cheaper one for each layer.
    workspace : Workspace, default=None
        Buffers to reuse. The result's graph is valid until the next call with it.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
        Logits, one network a slice.
    """
    architecture, n_rows = module.architecture, len(X)
    gram = layers_by_gram(architecture.widths, n_rows, sampler)
    sizes = _sizes_of_parts(n_networks, n_rows, architecture.widths, gram, X.device)
    first = module.linear_layers[0]
    mean = factor = None
    if gram[0]:
        # All copies have the first layer's inputs in common: one factor, one product by W.
        mean = torch.nn.functional.linear(X, first.weight, first.bias).unsqueeze(0)
        factor, _ = noise_factor(X.unsqueeze(0), len(first.weight), scale)
    copies = _Copies(
        architecture,
        X.unsqueeze(0),
        factor,
        gram,
        scale,
        sizes,
        random.split(len(sizes)),
        workspace,
    )
    scratch = workspace.scratch if workspace else None
    return concatenated(copies, len(sizes), _tensors(module, mean), scratch)


def layers_by_gram(widths: Sequence[int], n_rows: int, sampler: str) -> tuple[bool, ...]:
    """Which layers are drawn by gram, the others being drawn by direct.

    Parameters
    ----------
    widths : sequence of int
        Of the network, from the input to the logits.
    n_rows : int
        B.
    sampler : {"auto", "direct", "gram"}
        As in :func:`perturbed_logits`.

    Returns
    -------
    tuple of bool
        One for each layer.
    """
    if sampler != "auto":
        return (sampler == "gram",) * (len(widths) - 1)
    return tuple(
        _gram_is_cheaper(n_rows, n_in, n_out, first=layer == 0)
        for layer, (n_in, n_out) in enumerate(pairwise(widths))
    )


def _gram_is_cheaper(n_rows: int, n_in: int, n_out: int, *, first: bool) -> bool:
    """Whether a copy of a layer costs less by gram, in draws of a normal."""
    direct = n_out * (n_in + 1)
    gram = n_out * n_rows
    # The copies of the first layer share their inputs, and so the factor.
    rest = 0.0 if first else n_rows**2 * ((n_in + n_out) * _PRODUCT + _FACTOR)
    return gram + rest < direct


def _sizes_of_parts(
    n_networks: int,
    n_rows: int,
    widths: tuple[int, ...],
    gram: tuple[bool, ...],
    device: torch.device,
) -> list[int]:
    """Numbers of networks to take at a time; they must not depend on the number of threads.

    Another device than the CPU takes all at once.
    """
    numbers = [n_rows * n_out for n_out in widths[1:]]
    numbers += [
        n_in * n_out for (n_in, n_out), g in zip(pairwise(widths), gram, strict=True) if not g
    ]
    n_parts = math.ceil(n_networks * max(numbers) / _NUMBERS_A_PART)
    if device.type != "cpu" or n_parts == 1:
        return [n_networks]
    # Divisible among two or four threads.
    n_parts = min(4 * math.ceil(n_parts / 4), n_networks)
    bounds = [n_networks * i // n_parts for i in range(n_parts + 1)]
    return [stop - start for start, stop in pairwise(bounds)]


def _tensors(module: MLP, mean: torch.Tensor | None) -> list[torch.Tensor]:
    """What the logits depend on, in the order of their use; `mean` for the first layer's own."""
    tensors: list[torch.Tensor] = []
    for layer, linear in enumerate(module.linear_layers):
        if layer == 0 and mean is not None:
            tensors.append(mean)
        else:
            tensors += [linear.weight, linear.bias]
        if layer < len(module.norm_layers):
            norm = module.norm_layers[layer]
            tensors += [norm.weight, norm.bias]
    return tensors


@dataclass(frozen=True)
class _Copies:
    """Logits of a part of the perturbed copies."""

    architecture: Architecture
    X: torch.Tensor
    factor: torch.Tensor | None
    gram: tuple[bool, ...]
    scale: float
    sizes: list[int]
    randoms: list[StepRandom]
    workspace: Workspace | None

    def __call__(self, part: int, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        take, H = iter(tensors), self.X
        activation = ACTIVATIONS[self.architecture.activation].function
        for layer, gram in enumerate(self.gram):
            how = self._sampling(part, layer)
            if gram and layer == 0:
                assert self.factor is not None
                H = sample_gram_around(next(take), self.factor, how)
            else:
                H = (sample_gram if gram else sample_direct)(H, next(take), next(take), how)
            if layer == len(self.gram) - 1:
                break
            if self.architecture.batch_norm:
                H = _normalise(H, next(take), next(take))
            if not how.relu:
                H = activation(H)
        return H

    def _sampling(self, part: int, layer: int) -> Sampling:
        relu = self.architecture.activation == "relu" and not self.architecture.batch_norm
        kept: Empty = fresh
        scratch: Empty = fresh
        if self.workspace is not None:
            kept, scratch = self.workspace.kept(part, layer), self.workspace.scratch()
        last = layer == len(self.gram) - 1
        return Sampling(
            self.sizes[part],
            self.scale,
            self.randoms[part],
            relu and not last,
            layer,
            kept,
            scratch,
        )


def _normalise(H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    # Each perturbed network normalises by its own mini-batch, as a network in training does.
    variance, mean = torch.var_mean(H, dim=1, correction=0, keepdim=True)
    return (H - mean) * (variance + BATCH_NORM_EPS).rsqrt() * weight + bias
