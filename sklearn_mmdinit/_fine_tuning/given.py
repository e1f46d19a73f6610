"""What stands for a theta0 as it is: itself, named arrays, or a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .._network import Theta0, load_theta0

__all__ = ["GIVEN", "given"]

GIVEN = "a Theta0, a dict of arrays or the path of a .safetensors file"


_KINDS: dict[Any, Callable[[Any], Theta0 | Mapping[str, Any]]] = {
    Theta0: lambda theta0: theta0,
    Mapping: lambda arrays: arrays,
    str: load_theta0,
    os.PathLike: load_theta0,
}


def given(source: Any) -> Theta0 | Mapping[str, Any] | None:
    """A theta0, or arrays whose network is for others to say; None where it is of no such kind.

    Raises
    ------
    FileNotFoundError
        If a file does not exist.
    ValueError
        If a file is damaged, or its name ends otherwise.
    """
    return next((read(source) for kind, read in _KINDS.items() if isinstance(source, kind)), None)
