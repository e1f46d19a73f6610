"""What a module is called, what it takes and how many logits it returns, without perturbing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from .._network import (
    ModuleArchitecture,
    arrays_of,
    digest_of,
    qualified_name,
)
from .embedding import EMBEDDINGS
from .embedding_indices import embeddings_named
from .hooks import aside
from .logits import check_logits
from .source import ModuleSource

__all__ = [
    "as_examples",
    "described",
    "described_with_logits",
    "refusals_named",
    "takes_integers",
]


def described(
    source: ModuleSource, module: nn.Module, input_shape: tuple[int, ...], n_classes: int = 0
) -> ModuleArchitecture:
    """The description of a module from a source, as far as it is known."""
    return ModuleArchitecture(
        module=qualified_name(module),
        parameters=tuple((name, repr(value)) for name, value in source.parameters.items()),
        input_shape=input_shape,
        n_classes=n_classes,
        digest=digest_of({name: array.shape for name, array in arrays_of(module).items()}),
    )


def takes_integers(module: nn.Module) -> bool:
    """Whether a module is handed whole numbers as such, and not as floats."""
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())


def as_examples(X: np.ndarray, integers: bool) -> torch.Tensor:
    """Rows as a module takes them, a copy on the CPU."""
    whole = integers and np.asarray(X).dtype.kind in "iu"
    # A copy of its own: rows may be read-only memory maps.
    return torch.from_numpy(np.array(X, dtype=np.int64 if whole else np.float32))


@contextmanager
def refusals_named(module: nn.Module, examples: torch.Tensor) -> Iterator[None]:
    """Whatever a pass of a module ends with, as a ValueError that names the examples."""
    try:
        with embeddings_named(module):
            yield
    except Exception as error:
        raise ValueError(
            f"the module {qualified_name(module)} does not take examples of shape "
            f"{tuple(examples.shape[1:])} and type "
            f"{str(examples.dtype).removeprefix('torch.')}: it fails with "
            f"{type(error).__name__}: {error}"
        ) from error


def described_with_logits(
    source: ModuleSource, module: nn.Module, X: np.ndarray
) -> ModuleArchitecture:
    """The description of a module that is only to be trained, from one evaluation of it.

    Parameters
    ----------
    source : ModuleSource
        Where the module comes from.
    module : nn.Module
        One from there, which is left in single precision, on the CPU and in evaluation mode.
    X : ndarray of shape (n, ...)
        A few examples.

    Raises
    ------
    ValueError
        If the module does not take them, or does not return logits.
    """
    module.float().cpu().eval()
    examples = as_examples(X, takes_integers(module))
    with torch.no_grad(), aside(), refusals_named(module, examples):
        logits = module(examples)
    check_logits(module, logits, len(examples))
    return described(source, module, X.shape[1:], logits.shape[1])
