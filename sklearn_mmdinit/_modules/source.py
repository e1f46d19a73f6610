"""Where fresh copies of a user's module come from."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .._compute import seeded_generators
from .keywords import PREFIX

__all__ = ["ModuleSource", "check_source"]

T = TypeVar("T")

# Threads share the generator that a class draws its weights from.
_ALONE = threading.Lock()


def check_source(module: Any, parameters: Mapping[str, Any]) -> None:
    """Raise unless this is an instance, a class and what it is called with, or None.

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        If there are parameters, and no class; or the module is a compiled script.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(
            f"module must be written in Python, got the TorchScript {type(module).__name__} of "
            f"{getattr(module, 'original_name', 'a module')}, which cannot be perturbed; pass the "
            "module that it was made of"
        )
    if module is None:
        if parameters:
            raise ValueError(f"{PREFIX}{min(parameters)} needs a class in module, got module=None")
    elif isinstance(module, nn.Module):
        if parameters:
            raise ValueError(
                f"{PREFIX}{min(parameters)} is for a class in module, got an instance of "
                f"{type(module).__name__}"
            )
    elif not (inspect.isclass(module) and issubclass(module, nn.Module)):
        raise TypeError(f"module must be an nn.Module, an instance or a class, got {module!r}")


@dataclass(frozen=True)
class ModuleSource:
    """A module to copy, or a class to call.

    Parameters
    ----------
    module : nn.Module or subclass of it
        An instance is never changed.
    parameters : mapping of str to object, default={}
        What the class is called with.
    seed : int, default=0
        Of the class's random weights.
    """

    module: Any
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def kept(self) -> ModuleSource:
        """One that later changes of the instance, or of what the class is called with, leave."""
        if isinstance(self.module, nn.Module):
            return replace(self, module=_copied(self.module, type(self.module).__name__))
        return replace(self, parameters=_copied(dict(self.parameters), self.module.__name__))

    def build(self) -> nn.Module:
        """A module like all others from here, with the weights of the first one.

        Raises
        ------
        TypeError
            If the class cannot be called with the parameters.
        ValueError
            If it has parameters without a shape or numbers, or cannot be copied.
        """
        if isinstance(self.module, nn.Module):
            built = _copied(self.module, type(self.module).__name__)
        else:
            # A class may make its weights where it likes.
            used = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            with _ALONE, seeded_generators(self.seed, used):
                built = self.module(**_copied(dict(self.parameters), self.module.__name__))
        for name, value in (*built.named_parameters(), *built.named_buffers()):
            if is_lazy(value):
                raise ValueError(
                    f"{name!r} of the module {type(built).__name__} has no shape yet; call the "
                    "module on a mini-batch first, and pass the instance"
                )
            if value.is_meta:
                raise ValueError(
                    f"{name!r} of the module {type(built).__name__} is on the meta device and has "
                    "no numbers; call its to_empty() and draw its weights first"
                )
        built.zero_grad()
        return built


def _copied(value: T, name: str) -> T:
    """A copy of a module, or of what its class is called with, which may hold modules too."""
    try:
        return copy.deepcopy(value)
    except Exception as error:
        # Such as the weights that torch.nn.utils.weight_norm has computed in a pass.
        raise ValueError(
            f"the module {name} cannot be copied: it fails with "
            f"{type(error).__name__}: {error}; pass its class and module__ parameters, or, "
            "where it has a weight_norm or spectral_norm of torch.nn.utils, use that of "
            "torch.nn.utils.parametrizations"
        ) from error
