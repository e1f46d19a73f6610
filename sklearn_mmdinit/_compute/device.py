"""Where to compute."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["torch_device"]


def torch_device(device: Any) -> torch.device:
    """The device a name stands for; "auto" takes CUDA where there is one.

    Raises
    ------
    ValueError
        If PyTorch does not know the name, or cannot compute there.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # The sum makes sure that there is such a device here, and that it holds numbers.
        torch.zeros(1, device=device).sum().item()
        return torch.device(device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        raise ValueError(
            "device must be 'auto' or a device that PyTorch has here ('cpu', 'cuda', ...), "
            f"got {device!r}"
        ) from error
