"""An index that an embedding does not have, which PyTorch refuses without a name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from .embedding import EMBEDDINGS

__all__ = ["embeddings_named"]

# How PyTorch says it: of an embedding, of one with max_norm, of a bag, of one of maxima, and of a
# bag that several threads share.
_SAID = (
    "index out of range in self",
    "out of range for tensor of size",
    "is not in the valid range",
    "embedding_bag: Expected idx",
    "Expected i < index_size",
)


@contextmanager
def embeddings_named(module: nn.Module) -> Iterator[None]:
    """Say which indices a module's embeddings have, where PyTorch finds one out of range.

    Parameters
    ----------
    module : nn.Module
        What rows go through meanwhile.

    Raises
    ------
    ValueError
        In place of PyTorch's IndexError or RuntimeError.
    """
    try:
        yield
    except (IndexError, RuntimeError) as error:
        sizes = {
            name or type(layer).__name__: layer.num_embeddings
            for name, layer in module.named_modules()
            if isinstance(layer, EMBEDDINGS)
        }
        if not sizes or not any(said in str(error) for said in _SAID):
            raise
        known = ", ".join(f"{name!r} 0 to {size - 1}" for name, size in sizes.items())
        raise ValueError(
            "X holds or leads to an index that the module's embeddings do not have; they have "
            f"{known}"
        ) from error
