"""Networks around theta0: the predictions of K perturbed copies on one mini-batch.

Of the two samplers of the same law ``direct`` draws the perturbations themselves, and ``gram``
draws what they add to a layer's pre-activations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise
from typing import Any

import torch

from .._compute import PRECISIONS, Empty, StepRandom, Workspace, concatenated, fresh
from .._network import ACTIVATIONS, BATCH_NORM_EPS, MLP, Architecture
from .choice import layers_by_gram
from .direct import sample_direct
from .gram import noise_factor, sample_gram, sample_gram_around
from .law import Perturbation, bias_std, weight_std
from .layer import Sampling

__all__ = ["perturbed_logits"]

# Numbers of the widest layer's activations in a part: with what the layers before and after
# it need they fill a core's cache, and are enough for matrix products at full rate.
_NUMBERS_A_PART = 1 << 18


@singledispatch
def perturbed_logits(
    module: Any,
    X: torch.Tensor,
    perturbation: Perturbation,
    random: StepRandom,
    workspace: Workspace | None = None,
) -> torch.Tensor:
    """Logits of K networks around theta0 on one mini-batch.

    Weights and biases of the linear layers are perturbed; the scale and shift of batch
    normalisation are not.

    Parameters
    ----------
    module : MLP
        The network at theta0; gradients flow to its parameters. Networks of another kind
        register a form of their own.
    X : Tensor of shape (B, n_features)
        Mini-batch.
    perturbation : Perturbation
        How many networks, how far from theta0, and how they are drawn.
    random : StepRandom
        Source of the perturbations.
    workspace : Workspace, default=None
        Buffers to reuse. The result's graph is valid until the next call with it.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
        Logits, one network a slice.
    """
    architecture, n_rows = module.architecture, len(X)
    gram = layers_by_gram(architecture.widths, n_rows, perturbation.sampler)
    sizes = _sizes_of_parts(perturbation.n_networks, n_rows, architecture.widths, gram, X.device)
    first = module.linear_layers[0]
    mean = factor = None
    if gram[0]:
        # All copies have the first layer's inputs in common: one factor, one product by W.
        mean = torch.nn.functional.linear(X, first.weight, first.bias).unsqueeze(0)
        scale = perturbation.scale
        stds = weight_std(X.shape[1], scale), bias_std(len(first.weight), scale)
        factor, _ = noise_factor(X.unsqueeze(0), *stds)
    copies = _Copies(
        architecture,
        X.unsqueeze(0),
        factor,
        gram,
        perturbation,
        sizes,
        random.split(len(sizes)),
        workspace,
    )
    scratch = workspace.scratch if workspace else None
    return concatenated(copies, len(sizes), _tensors(module, mean), scratch)


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
    perturbation: Perturbation
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
            self.perturbation.scale,
            self.randoms[part],
            relu and not last,
            layer,
            kept,
            scratch,
            PRECISIONS[self.perturbation.precision],
        )


def _normalise(H: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    # Each perturbed network normalises by its own mini-batch, as a network in training does.
    variance, mean = torch.var_mean(H, dim=1, correction=0, keepdim=True)
    return (H - mean) * (variance + BATCH_NORM_EPS).rsqrt() * weight + bias
