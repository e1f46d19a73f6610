"""Embeddings: rows of a table, which may be summed up."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from .layer_type import LayerType, Std

__all__ = ["EMBEDDING", "EMBEDDINGS", "with_dense_gradients_"]

# What takes whole numbers.
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def _stds(layer: nn.Embedding, scale: float) -> dict[str, Std]:
    """An output is one weight, so that n_in is 1; the row of the padding stays 0."""
    if layer.padding_idx is None:
        return {"weight": scale}
    std = layer.weight.new_full((layer.num_embeddings, 1), scale)
    std[layer.padding_idx] = 0.0
    return {"weight": std}


def _noise(layer: nn.Embedding, H: torch.Tensor, eps: Mapping[str, torch.Tensor]) -> torch.Tensor:
    tables = eps["weight"]  # (K, rows, width)
    copy = torch.arange(len(tables), device=H.device).view(-1, *[1] * (H.ndim - 1))
    return tables[copy, H]


def _is_linear(layer: nn.Embedding) -> bool:
    # A bound on norms is put on the weights themselves, in passing.
    return layer.max_norm is None


EMBEDDING = LayerType(_stds, _noise, serves=_is_linear)


def with_dense_gradients_(module: nn.Module) -> None:
    """Let no table of a module have a sparse gradient, which few optimisers know."""
    for part in module.modules():
        if isinstance(part, EMBEDDINGS):
            part.sparse = False
