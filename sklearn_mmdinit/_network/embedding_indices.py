"""An index that an embedding does not have, which PyTorch refuses without a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["embeddings_named"]


@contextmanager
def embeddings_named(module: Callable[[], nn.Module]) -> Iterator[None]:
    """Say which indices a module's embeddings have, where PyTorch finds one out of range.

    Parameters
    ----------
    module : callable
        Returns the module; called only where it is asked for.

    Raises
    ------
    ValueError
        In place of PyTorch's IndexError.
    """
    try:
        yield
    except IndexError as error:
        sizes = {
            name or type(layer).__name__: layer.num_embeddings
            for name, layer in module().named_modules()
            if isinstance(layer, nn.Embedding | nn.EmbeddingBag)
        }
        if not sizes or "out of range" not in str(error):
            raise
        known = ", ".join(f"{name!r} 0 to {size - 1}" for name, size in sizes.items())
        raise ValueError(
            "X holds or leads to an index that the module's embeddings do not have; they have "
            f"{known}"
        ) from error
