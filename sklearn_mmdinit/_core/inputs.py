"""Several inputs of a module: side by side in one array, and apart again where it is called.

So that whatever learns, divides or searches rows knows one array alone.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import nn
from torch.utils.data import DataLoader, Dataset

from .estimators import told
from .numbers import array_of

# Whole numbers up to which float32 holds each.
_LARGEST_WHOLE = 1 << 24

# What arrays are to a module, by what they hold.
_TYPES = {"f": torch.float32, "i": torch.int64, "b": torch.bool}

_STAR = inspect.Parameter.VAR_POSITIONAL


@dataclass(frozen=True)
class Inputs:
    """How arrays (n, ...) lie side by side in one (n, p)."""

    names: tuple[Any, ...]  # words, or places from 0
    shapes: tuple[tuple[int, ...], ...]  # of an example
    kinds: tuple[str, ...]  # "i" for whole numbers, "b" for truth values, "f" for others

    def apart(self, X: torch.Tensor) -> Any:
        """The arrays in X (n, p), as a dict or a tuple."""
        parts = X.split([math.prod(shape) for shape in self.shapes], dim=1)
        made = [
            part.to(_TYPES[kind]).reshape(X.shape[0], *shape)
            for part, shape, kind in zip(parts, self.shapes, self.kinds, strict=True)
        ]
        return dict(zip(self.names, made, strict=True)) if self.names[0] != 0 else tuple(made)

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Hook before a pass: one array becomes several arguments.

        Words of a dict and places of a tuple; a module with one argument gets the tuple itself, as
        from skorch.
        """
        if kwargs or len(args) != 1 or not isinstance(args[0], torch.Tensor):
            return None  # a caller's own
        found = self.apart(args[0])
        if isinstance(found, dict):
            return (), found
        taken = [p.kind for p in inspect.signature(module.forward).parameters.values()]
        return (found if len(taken) > 1 or _STAR in taken else (found,)), {}

    def check(self, before: Inputs | None) -> None:
        """Raise a ValueError where fit saw other inputs."""
        if before is None or (self.names, self.shapes) != (before.names, before.shapes):
            raise ValueError(f"X has {self}, fit saw {before or 'one array'}")
        for name, own, theirs in zip(self.names, self.kinds, before.kinds, strict=True):
            if own not in {"f": "fib", "i": "ib", "b": "b"}[theirs]:
                valid = {"i": "whole numbers", "b": "truth values"}[theirs]
                raise ValueError(f"X[{name!r}] must hold {valid}, as it did in fit")

    def __str__(self) -> str:
        named = (f"{name!r} {shape}" for name, shape in zip(self.names, self.shapes, strict=True))
        return f"the inputs {', '.join(named)}"


def are_several(X: Any) -> bool:
    """Whether X are several inputs: a dict, or a tuple of arrays that are no rows of a table."""
    if isinstance(X, tuple):
        return len(X) > 0 and all(len(getattr(part, "shape", ())) > 1 for part in X)
    return isinstance(X, Mapping) and not issparse(X)  # one of which is a dict


def side_by_side(X: Any, before: Inputs | None = None) -> tuple[np.ndarray, Inputs]:
    """Several inputs as one array (n, p) in float32, and how they lie there: in an order known."""
    named = dict(X) if isinstance(X, Mapping) else dict(enumerate(X))
    if before is not None and named.keys() == {*before.names}:
        named = {name: named[name] for name in before.names}
    if not named:
        raise ValueError("X holds no inputs")
    arrays = []
    for name, part in named.items():
        with told(f"the input X[{name!r}]"):
            array = np.asarray(array_of(part))
            if array.ndim == 0 or array.dtype.kind not in "biuf":
                raise ValueError(f"must be numbers (n, ...), got {array.dtype} {array.shape}")
            if array.dtype.kind in "iu" and array.size and np.abs(array).max() > _LARGEST_WHOLE:
                raise ValueError(f"holds whole numbers beyond {_LARGEST_WHOLE}")
            arrays.append(array)
    if len({len(array) for array in arrays}) > 1:
        lengths = {name: len(array) for name, array in zip(named, arrays, strict=True)}
        raise ValueError(f"inputs have different numbers of rows: {lengths}")
    kinds = tuple(array.dtype.kind.replace("u", "i") for array in arrays)
    inputs = Inputs(tuple(named), tuple(array.shape[1:] for array in arrays), kinds)
    flat = [array.reshape(len(array), -1).astype(np.float32, copy=False) for array in arrays]
    return np.concatenate(flat, axis=1), inputs


def joined(X: Any, before: Inputs | None, reset: bool) -> tuple[Any, Inputs | None]:
    """X itself, or several inputs side by side; and how they lie there, in fit or `before`."""
    found = None
    if isinstance(X, Dataset | DataLoader):
        raise TypeError(f"X must be an array of rows, got a {type(X).__name__}: mmd_init_ takes it")
    if are_several(X):
        X, found = side_by_side(X, None if reset else before)
    if reset:
        return X, found
    if found is None and before is not None:
        raise ValueError(f"X is one array, fit saw {before}")
    if found is not None:
        found.check(before)
    return X, before
