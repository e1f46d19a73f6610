"""Linear layers: of rows, and of the tokens or pixels of rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from .._sampling import bias_std, weight_std
from .layer_type import LayerType, Std

__all__ = ["LINEAR"]


def _stds(layer: nn.Linear, scale: float) -> dict[str, Std]:
    stds: dict[str, Std] = {"weight": weight_std(layer.in_features, scale)}
    if layer.bias is not None:
        stds["bias"] = bias_std(layer.out_features, scale)
    return stds


def _noise(layer: nn.Linear, H: torch.Tensor, eps: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """H E^T + e."""
    K = len(next(iter(eps.values())))
    shape = (K, *H.shape[1:-1], layer.out_features)
    noise = H.new_zeros(())
    if "weight" in eps:
        # (n, rows of a copy, n_in) @ (K, n_in, n_out), n being K or 1.
        noise = H.flatten(1, -2) @ eps["weight"].mT
    if "bias" in eps:
        noise = noise + eps["bias"].unsqueeze(1)
    return noise.expand(K, H[0, ..., 0].numel(), -1).reshape(shape)


def _patches(layer: nn.Linear, H: torch.Tensor) -> torch.Tensor:
    return H.reshape(len(H), -1, 1, layer.in_features)


LINEAR = LayerType(_stds, _noise, _patches)
