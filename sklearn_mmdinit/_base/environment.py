"""Numbers in float32 on a device, and the conditions under which they are computed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.utils import gen_batches

_ROWS_AT_A_TIME = 1024

# Threads share PyTorch's global generators: what one puts back must not come amid another's draws.
_alone = threading.RLock()


def _new_lock() -> None:
    """In a process forked meanwhile, where no thread is left that would give the old one free."""
    global _alone
    _alone = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_new_lock)


def torch_device(device: Any) -> torch.device:
    """The device that a name stands for; "auto" takes CUDA where there is one."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # The sum makes sure that there is such a device here, and that it holds numbers.
        torch.zeros(1, device=device).sum().item()
        device = torch.device(device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        valid = "'auto' or a device that PyTorch has here"
        raise ValueError(f"device must be {valid}, got {device!r}") from error
    if device.type == "cuda":
        # Autograd has a thread for each GPU, in which a matrix product must not be what comes
        # first: PyTorch would warn that the GPU is not open there yet.
        with torch.inference_mode(False), torch.enable_grad():
            torch.ones(1, device=device, requires_grad=True).exp().sum().backward()
    return device


def array_of(X: Any) -> Any:
    """A tensor as an array; bfloat16, which NumPy has not, as float32. Anything else as it is."""
    if not isinstance(X, torch.Tensor):
        return X
    if X.is_meta or X.layout != torch.strided:
        raise TypeError(f"tensors must be dense and hold numbers, got {X.layout} on {X.device}")
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def check_float32(X: Any, name: str = "X") -> None:
    """Raise a ValueError where a finite value of X is too large for float32."""
    if X.dtype == np.float32 or 0 in X.shape:
        return
    # Two passes without a temporary array: X may be a memory map larger than memory.
    for extreme in (X.min(), X.max()):
        with np.errstate(over="ignore"):
            fits = np.isfinite(np.float32(extreme)) or not np.isfinite(extreme)
        if not fits:
            raise ValueError(f"{name} holds {float(extreme)!r}, a value too large for float32")


def as_float32(X: Any) -> Any:
    """X in float32; X itself where it is."""
    check_float32(X)
    return X.astype(np.float32, copy=False)


def in_portions(function: Callable[[np.ndarray], torch.Tensor], X: np.ndarray) -> np.ndarray:
    """What a function makes of rows X (n, ...), n at least 1: memory does not grow with n."""
    portions = gen_batches(len(X), _ROWS_AT_A_TIME)
    with torch.no_grad():
        made = [function(X[rows]).cpu().numpy() for rows in portions]
    return np.concatenate(made)


@contextmanager
def kept_generators(gpus: Sequence[int] = ()) -> Iterator[None]:
    """Leave PyTorch's global generators as they are, whatever draws; one thread at a time."""
    with _alone, torch.random.fork_rng(devices=list(gpus)):
        yield


@contextmanager
def seeded_generators(seed: int, gpus: Sequence[int] = ()) -> Iterator[None]:
    """Let whatever draws from PyTorch's global generators draw by a seed, and leave no trace."""
    with kept_generators(gpus):
        torch.default_generator.manual_seed(seed)
        for index in gpus:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


@contextmanager
def with_gradients() -> Iterator[None]:
    """Record gradients for a while, under :func:`torch.no_grad` too."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError("nothing can be learned under torch.inference_mode(); use no_grad()")
    with torch.enable_grad():
        yield


def learned_is_finite(module: torch.nn.Module) -> bool:
    """Whether what is learned has finite squares, and running statistics are finite."""
    finite = [own.abs() < 1.8e19 for own in module.parameters() if own.requires_grad]
    finite += [own.isfinite() for name, own in module.named_buffers() if "running_" in name]
    return all(bool(own.all()) for own in finite)
