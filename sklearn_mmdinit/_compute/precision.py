"""The numbers that large matrix products are made of."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["PRECISIONS", "native_precision"]

# How the factors of a product are rounded; None: not at all. Sums are in float32 always.
PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}


def native_precision(device: torch.device) -> str:
    """The name of bfloat16 where a device multiplies such numbers itself; else of float32."""
    is_native = _NATIVE.get(device.type)
    return "bfloat16" if is_native is not None and is_native(device) else "float32"


def _on_cpu(device: torch.device) -> bool:
    # Before PyTorch 2.10 it does not say what a processor can do.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))


def _on_cuda(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


_NATIVE = {"cpu": _on_cpu, "cuda": _on_cuda}
