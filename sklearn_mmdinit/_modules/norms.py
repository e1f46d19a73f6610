"""Batch normalisation of perturbed copies, and by statistics that count as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .hooks import Hook
from .registry import layer_type_of

__all__ = ["Statistics", "batch_norms", "by_copies", "collecting", "given"]

# Mean and variance of a call, (groups of rows, channels).
Statistics = tuple[torch.Tensor, torch.Tensor]


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Layers of a module that normalise by the rows of a pass; none that are frozen."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [norm for norm in norms if norm.training and layer_type_of(norm) is not None]


def _statistics(H: torch.Tensor, n_groups: int) -> Statistics:
    """Of each group of rows on its own; H has shape (groups * rows, channels, ...)."""
    grouped = H.view(n_groups, -1, *H.shape[1:])
    axes = (1, *range(3, grouped.ndim))
    variance, mean = torch.var_mean(grouped, dim=axes, correction=0)
    return mean, variance


def _normalised(norm: _BatchNorm, H: torch.Tensor, statistics: Statistics) -> torch.Tensor:
    mean, variance = statistics
    factor, n_groups = (variance + norm.eps).rsqrt(), len(mean)
    shift = -mean * factor
    if norm.affine:
        factor = factor * norm.weight
        shift = shift * norm.weight + norm.bias
    grouped = H.view(n_groups, -1, *H.shape[1:])
    shape = (n_groups, 1, H.shape[1], *[1] * (H.ndim - 2))
    return (grouped * factor.view(shape) + shift.view(shape)).view(H.shape)


def by_copies(n_copies: int) -> Callable[[Any, Any, Any], torch.Tensor]:
    """A hook: each copy normalises by its own rows, as a network in training does."""

    def hook(norm: _BatchNorm, H: torch.Tensor, output: Any) -> torch.Tensor:
        H = H.contiguous()
        return _normalised(norm, H, _statistics(H, n_copies))

    return hook


def collecting(found: list[Statistics]) -> Hook:
    """A hook that notes the statistics of each call in their order."""

    def hook(norm: nn.Module, H: torch.Tensor, output: Any) -> None:
        found.append(_statistics(H.contiguous(), 1))

    return hook


def given(statistics: Iterator[Statistics]) -> Callable[[Any, Any, Any], torch.Tensor]:
    """A hook that normalises by the given statistics, those of each call in their order."""

    def hook(norm: _BatchNorm, H: torch.Tensor, output: Any) -> torch.Tensor:
        return _normalised(norm, H.contiguous(), next(statistics))

    return hook
