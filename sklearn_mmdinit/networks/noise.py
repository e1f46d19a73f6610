r"""The noise of perturbed networks: which parameters it moves, how far, and in which chunks.

The paper draws :math:`\epsilon \sim N(0, \Sigma)` with a diagonal :math:`\Sigma`: the standard
deviation is :math:`s / \sqrt{n_{in}}` for a weight and :math:`s / \sqrt{n_{out}}` for a bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

from .._base.random_streams import StepRandom

# The scale and shift of a normalization are learned but not perturbed.
NORMALIZATIONS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# Layers whose inputs are indices.
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)

# Numbers in a chunk of networks on a GPU. Chunks are large, because fewer and larger operations
# take less time.
NUMBERS_ON_GPU = 1 << 27
# At most this many numbers are kept for the backward pass. Further chunks are computed again there.
NUMBERS_KEPT = 1 << 28

# A number, or a tensor that broadcasts to the parameter.
Std = float | torch.Tensor


def chunks_of_networks(
    logits: Callable[[int, StepRandom], torch.Tensor],
    n_copies: int,
    n_chunks: int,
    n_numbers: int,
    random: StepRandom,
) -> list[Callable[[], torch.Tensor]]:
    """Divide K networks into chunks; a function for each chunk, which returns its logits.

    ``logits(n, random)`` computes n networks. `n_numbers`: how many numbers autograd would keep for
    all K networks.
    """
    n_chunks = max(min(n_chunks, n_copies), 1)
    n_kept = int(NUMBERS_KEPT * n_chunks / max(n_numbers, 1))
    chunks: list[Callable[[], torch.Tensor]] = []
    for i, source in enumerate(random.split(n_chunks)):
        size = n_copies * (i + 1) // n_chunks - n_copies * i // n_chunks
        chunk = partial(logits, size, source)
        chunks.append(chunk if i < n_kept else partial(source.checkpointed, chunk))
    return chunks


def uses_batch_statistics(norm: _BatchNorm) -> bool:
    """Whether a batch norm uses the mini-batch's mean and variance, not the running ones."""
    return norm.training or norm.running_mean is None


def paper_std(parameter: torch.Tensor, scale: float) -> float:
    """The paper's standard deviation: s / sqrt(n_in) for a weight, s / sqrt(n_out) for a bias.

    A weight has the shape (n_out, n_in, ...).
    """
    n = max(parameter.numel(), 1)
    if parameter.ndim >= 2:
        n //= max(len(parameter), 1)
    return scale / math.sqrt(n)


def parameter_stds(module: nn.Module, scale: float) -> dict[str, Std]:
    """Standard deviation of the perturbation of each parameter that is perturbed, by its name.

    Parameters that require no gradient are not perturbed, nor are scale and shift of
    normalizations. A parameter that several layers share is perturbed as in the first of them.
    """
    stds: dict[int, Std | None] = {}
    for layer in module.modules():
        for name, parameter in layer.named_parameters(recurse=False):
            stds.setdefault(id(parameter), _std(layer, name, parameter, scale))
    learned = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return {name: std for name, p in learned if (std := stds[id(p)]) is not None}


def _std(layer: nn.Module, name: str, parameter: torch.Tensor, scale: float) -> Std | None:
    """Standard deviation of one parameter's perturbation; None if it is not perturbed."""
    if isinstance(layer, NORMALIZATIONS):
        return None
    if name == "weight" and isinstance(layer, EMBEDDINGS):
        # Each output is one weight, so n_in is 1. The row of padding_idx is not perturbed.
        if layer.padding_idx is None:
            return scale
        std = parameter.new_full((len(parameter), 1), scale)
        std[layer.padding_idx] = 0.0
        return std
    if name == "weight" and isinstance(layer, _ConvTransposeNd):  # (n_in, n_out, ...)
        return scale / math.sqrt(parameter.numel() / layer.out_channels)
    return paper_std(parameter, scale)
