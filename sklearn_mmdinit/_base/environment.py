"""What the process provides: devices, PyTorch's global generators, the progress bar."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from .threads import num_threads_when_settled

_WITH_AUTOCAST = ("cpu", "cuda", "mps", "xpu")  # kinds of devices

# One thread at a time uses PyTorch's global generators: restoring their state would otherwise
# repeat or skip the draws of another thread.
_generators_lock = threading.RLock()


def _new_lock() -> None:
    """Replace the lock in a forked process, which has no thread that could release it."""
    global _generators_lock
    _generators_lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_new_lock)


def torch_device(device: Any) -> torch.device:
    """The device of this name; "auto" is CUDA if there is one, else the CPU."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    # The sum fails if this machine has no such device, and on the device "meta".
    torch.zeros(1, device=device).sum().item()
    device = torch.device(device)
    if device.type == "cuda":
        # PyTorch warns if a matrix product is the first work of its autograd thread for a GPU. So
        # that thread gets another gradient to compute first.
        with torch.inference_mode(False), torch.enable_grad():
            torch.ones(1, device=device, requires_grad=True).exp().sum().backward()
    return device


def array_of(X: Any) -> Any:
    """Tensors as an array (bfloat16 as float32); arrays and tables unchanged; else a TypeError."""
    if isinstance(X, Dataset | DataLoader | Iterator):
        raise TypeError(
            f"X must be an array, a tensor or a table, got a {type(X).__name__}; pass "
            "torch.stack([x for x, *_ in dataset]) for a Dataset, or use mmd_init_, which reads a "
            "Dataset or a DataLoader"
        )
    if isinstance(X, list) and X and isinstance(X[0], torch.Tensor):
        X = torch.stack(X)
    if not isinstance(X, torch.Tensor):
        return X
    if X.is_meta or X.is_nested or X.layout != torch.strided:
        kind = "nested (pad it by torch.nested.to_padded_tensor)" if X.is_nested else X.layout
        raise TypeError(f"X must be a dense tensor with data, got {kind}, device {X.device}")
    X = X.detach().cpu()
    return (X.float() if X.dtype == torch.bfloat16 else X).numpy()


def in_single_precision(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of half precision as float32; any other tensor itself."""
    return tensor.float() if tensor.itemsize < 4 else tensor


@contextmanager
def own_generators(
    seed: int | None = None, further: Sequence[torch.Generator] = ()
) -> Iterator[None]:
    """Seed all random generators, if there is a seed, and restore them after this block.

    These are the global ones of Python, of NumPy and of PyTorch, on the CPU and on all GPUs in use,
    and the `further` ones.
    """
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else range(0)
    with _generators_lock, torch.random.fork_rng(devices=list(gpus)):
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        states = [generator.get_state() for generator in further]
        try:
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002
                of_gpus = (torch.cuda.default_generators[index] for index in gpus)
                for generator in (torch.default_generator, *of_gpus, *further):
                    generator.manual_seed(seed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            for generator, state in zip(further, states, strict=True):
                generator.set_state(state)


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute in this block without the caller's autocast, whose half precision is too coarse."""
    with ExitStack() as stack:
        for kind in _WITH_AUTOCAST:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def without_caller_settings() -> Iterator[None]:
    """Compute in this block in ``full_precision`` and with the process's number of threads."""
    num_threads_when_settled()  # in a new thread this call fixes the number
    with full_precision():
        yield


@contextmanager
def with_gradients() -> Iterator[None]:
    """Record gradients in this block, wherever it is called."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def learned_is_finite(module: torch.nn.Module) -> bool:
    """Whether trained parameters have finite squares, and running statistics are finite."""
    finite = [p.abs() < 1.8e19 for p in module.parameters() if p.requires_grad]
    finite += [b.isfinite() for name, b in module.named_buffers() if "running_" in name]
    return not finite or bool(torch.stack([values.all() for values in finite]).all())


def progress_bar(verbose: bool | int, **options: Any) -> Any:
    """A bar of tqdm's, shown on stderr if `verbose`."""
    return tqdm(disable=not verbose, **options)
