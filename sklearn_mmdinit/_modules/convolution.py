"""Convolutions in one, two or three dimensions, grouped ones too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .._sampling import bias_std, weight_std
from .layer_type import LayerType, Std

__all__ = ["CONVOLUTION"]

Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d

_FUNCTIONS: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _stds(layer: Conv, scale: float) -> dict[str, Std]:
    n_in = layer.in_channels // layer.groups * math.prod(layer.kernel_size)
    stds: dict[str, Std] = {"weight": weight_std(n_in, scale)}
    if layer.bias is not None:
        stds["bias"] = bias_std(layer.out_channels, scale)
    return stds


def _padded(layer: Any, H: torch.Tensor) -> torch.Tensor:
    """Inputs with the padding that the layer gives them."""
    # The last axis first, two numbers an axis: PyTorch's own order, for "same" too.
    widths = layer._reversed_padding_repeated_twice
    if layer.padding_mode == "zeros":
        return F.pad(H, widths)
    return F.pad(H, widths, mode=layer.padding_mode)


def _noise(layer: Conv, H: torch.Tensor, eps: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """One convolution in which every copy's kernels are groups of their own."""
    K = len(next(iter(eps.values())))
    weight, bias = eps.get("weight"), eps.get("bias")
    if weight is None:
        weight = H.new_zeros(K, *layer.weight.shape)
    kernels = weight.flatten(0, 1)
    if len(H) == 1 and layer.groups == 1:
        # All copies have their inputs in common: no groups, only more kernels.
        inputs, groups = H[0], 1
        if _is_channels_last(layer):
            kernels = kernels.to(memory_format=torch.channels_last)
    else:
        # (K B, c, ...) to (B, K c, ...): the channels of all copies of an input side by side.
        inputs = H.expand(K, *H.shape[1:]).transpose(0, 1).flatten(1, 2).contiguous()
        groups = K * layer.groups
    padding: Any = layer.padding
    if layer.padding_mode != "zeros" or isinstance(padding, str):
        inputs, padding = _padded(layer, inputs), 0
    out = _FUNCTIONS[len(layer.kernel_size)](
        inputs,
        kernels,
        None if bias is None else bias.flatten(),
        stride=layer.stride,
        padding=padding,
        dilation=layer.dilation,
        groups=groups,
    )
    return out.unflatten(1, (K, layer.out_channels)).transpose(0, 1)


def _is_channels_last(layer: Conv) -> bool:
    weight = layer.weight
    return weight.ndim == 4 and weight[0, 0].numel() > 1 and weight.stride(1) == 1


def _patches(layer: Conv, H: torch.Tensor) -> torch.Tensor:
    """What the kernels are multiplied by, (N, positions, groups, channels a group x kernel)."""
    windows = _padded(layer, H)
    n = len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (size, stride, dilation) in enumerate(sizes):
        windows = windows.unfold(2 + axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    # (N, channels, positions ..., kernel ...)
    windows = windows.flatten(2 + n).flatten(2, 1 + n)
    windows = windows.unflatten(1, (layer.groups, -1))
    # (N, groups, channels a group, P, kernel)
    return windows.permute(0, 3, 1, 2, 4).flatten(3)


CONVOLUTION = LayerType(_stds, _noise, _patches, channels=1)
