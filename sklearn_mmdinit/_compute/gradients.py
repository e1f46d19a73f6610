"""Gradients where something is learned, whatever the caller's setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

__all__ = ["learned_is_finite", "with_gradients"]


@contextmanager
def with_gradients() -> Iterator[None]:
    """Record gradients for a while, under :func:`torch.no_grad` too.

    Raises
    ------
    RuntimeError
        Under :func:`torch.inference_mode`, whose tensors never have a gradient.
    """
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "nothing can be learned under torch.inference_mode(), whose tensors have no "
            "gradients; call it outside, or under torch.no_grad()"
        )
    with torch.enable_grad():
        yield


def learned_is_finite(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether those of the parameters that are learned are finite; others may hold what they do."""
    return all(bool(own.isfinite().all()) for own in parameters if own.requires_grad)
