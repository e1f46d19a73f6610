"""What a module has to return."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["check_logits"]


def check_logits(module: nn.Module, logits: Any, n_rows: int) -> None:
    """Raise a ValueError unless a module returned floats (n_rows, d) with d of 2 or more."""
    name, found = type(module).__name__, type(logits).__name__
    if isinstance(logits, torch.Tensor):
        found = f"{str(logits.dtype).removeprefix('torch.')} of shape {tuple(logits.shape)}"
        right = logits.ndim == 2 and len(logits) == n_rows and logits.shape[1] >= 2
        if right and logits.is_floating_point():
            return
    raise ValueError(
        f"the module {name} must return logits, floats of shape (n_samples, n_classes) with two "
        f"classes or more; for {n_rows} examples it returned {found}"
    )
