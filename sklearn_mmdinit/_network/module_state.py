"""The arrays of any module, and back into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from .theta0 import Theta0

__all__ = ["arrays_of", "as_arrays", "put_arrays_", "qualified_name", "start_module_", "uncompiled"]


def qualified_name(value: object) -> str:
    """The name of a value's class, with where it is from."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def as_arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors or arrays by name as arrays of their own, floats as float32."""
    arrays = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu()
            value = (value.float() if value.is_floating_point() else value).numpy()
        array = np.array(value, order="C")
        arrays[name] = array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
    return arrays


def uncompiled(module: Any) -> Any:
    """What ``torch.compile`` has wrapped, under other names; any other module itself."""
    return getattr(module, "_orig_mod", module)


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """What a module's ``state_dict`` holds, floats as float32; copies, on the CPU."""
    # A module may add what it likes.
    state = module.state_dict().items()
    return as_arrays({name: value for name, value in state if isinstance(value, torch.Tensor)})


def put_arrays_(
    module: nn.Module, arrays: Mapping[str, np.ndarray], *, without_counters: bool = False
) -> None:
    """Copy arrays into a module, in place.

    Numbers of a module in double precision stay as they are where only rounding to float32, in
    which arrays are, makes the array another. ``without_counters`` is for arrays that lack the
    numbers of batches which normalisations have seen, which then stay.

    Raises
    ------
    ValueError
        If a name is missing or unknown, or an array has another shape; nothing is copied then.
    """
    state = module.state_dict()
    shapes = {n: tuple(value.shape) for n, value in state.items() if hasattr(value, "shape")}
    if without_counters:
        shapes = {n: s for n, s in shapes.items() if not n.endswith(".num_batches_tracked")}
    name = qualified_name(module)
    if missing := sorted(shapes.keys() - arrays.keys()):
        raise ValueError(f"theta0 has no array {missing[0]!r}, which the module {name} has")
    if unknown := sorted(arrays.keys() - shapes.keys()):
        raise ValueError(f"theta0 has an array {unknown[0]!r}, which the module {name} has not")
    for key, shape in shapes.items():
        if (found := np.shape(arrays[key])) != shape:
            raise ValueError(
                f"theta0's array {key!r} has shape {found}, but in the module {name} it has {shape}"
            )
    # copy: the arrays may be read-only memory maps in a worker process.
    new = {key: _unrounded(torch.tensor(array), state[key]) for key, array in arrays.items()}
    module.load_state_dict(new, strict=False)


def _unrounded(new: torch.Tensor, own: Any) -> torch.Tensor:
    """New values, but a module's own where these are the same in float32."""
    if own.dtype != torch.float64:
        return new
    new = new.to(own)
    return torch.where(new == own.float(), own, new)


def start_module_(module: nn.Module, theta0: Theta0) -> None:
    """Let a module start at a theta0 of its class, in place.

    Raises
    ------
    ValueError
        If theta0 is of another class, or has other arrays; the module is unchanged then.
    """
    own = qualified_name(module)
    theirs = getattr(theta0.architecture, "module", None)
    if theirs is not None and own != theirs:
        raise ValueError(f"theta0 is of the module {theirs}, not of {own}")
    # That of a perceptron has none of them, since they are not learned.
    put_arrays_(module, theta0.arrays, without_counters=theirs is None)
