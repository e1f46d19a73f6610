"""Batch normalisation by statistics that are given, of one group of rows or of several."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .layers import layer_type_of

__all__ = ["Statistics", "batch_norms", "normalised", "statistics_of"]

# Mean and variance of a call, (groups of rows, channels).
Statistics = tuple[torch.Tensor, torch.Tensor]


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Layers of a module that normalise by the rows of a pass; none that are frozen."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [norm for norm in norms if norm.training and layer_type_of(norm) is not None]


def statistics_of(H: torch.Tensor, n_groups: int) -> Statistics:
    """Of each group of rows on its own; H has shape (groups * rows, channels, ...)."""
    grouped = H.view(n_groups, -1, *H.shape[1:])
    axes = (1, *range(3, grouped.ndim))
    variance, mean = torch.var_mean(grouped, dim=axes, correction=0)
    return mean, variance


def normalised(norm: _BatchNorm, H: torch.Tensor, statistics: Statistics) -> torch.Tensor:
    """Rows H (groups * rows, channels, ...), each group by its own statistics."""
    mean, variance = statistics
    factor, n_groups = (variance + norm.eps).rsqrt(), len(mean)
    shift = -mean * factor
    if norm.affine:
        factor = factor * norm.weight
        shift = shift * norm.weight + norm.bias
    grouped = H.view(n_groups, -1, *H.shape[1:])
    shape = (n_groups, 1, H.shape[1], *[1] * (H.ndim - 2))
    return (grouped * factor.view(shape) + shift.view(shape)).view(H.shape)
