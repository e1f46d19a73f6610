"""Buffers that outlive a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

import torch

__all__ = ["Empty", "Workspace", "fresh"]

# An allocator: of the role of a tensor, its shape, and a tensor alike in dtype and device.
Empty = Callable[[str, tuple[int, ...], torch.Tensor], torch.Tensor]


def fresh(role: str, shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """The allocator that asks for memory every time."""
    return like.new_empty(shape)


class Workspace:
    """Buffers of one step that the next step overwrites.

    A step's activations and noise are some 75 MB at the paper's size. Returned to the system
    and asked for again every step they would come back as pages to be zeroed, which costs a
    quarter of the step.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, torch.Tensor] = {}
        self._thread = threading.local()

    def kept(self, *place: Hashable) -> Empty:
        """The allocator of what lives until the end of the step, such as activations.

        `place` tells apart what is alive at the same time, such as (part, layer).
        """
        # Another tensor of the same memory: to one that is kept here autograd would tie the graph
        # of a step, which holds this workspace, and neither would ever be given back.
        return lambda role, shape, like: _buffer(self._kept, role, shape, like, place).detach()

    def scratch(self, *place: Hashable) -> Empty:
        """The allocator of what the next part overwrites: a buffer of each thread, in its cache.

        The thread is the one that asks for a buffer, not the one that asked for the allocator:
        a part's backward pass may be another thread's than its forward pass.
        """
        # The tensor itself: autograd would take one that nobody else has as a parameter's gradient,
        # and the next part would overwrite it.
        return lambda role, shape, like: _buffer(self._of_thread(), role, shape, like, place)

    def _of_thread(self) -> dict[Hashable, torch.Tensor]:
        if not hasattr(self._thread, "buffers"):
            self._thread.buffers = {}
        return self._thread.buffers


def _buffer(
    buffers: dict[Hashable, torch.Tensor],
    role: str,
    shape: tuple[int, ...],
    like: torch.Tensor,
    place: tuple[Hashable, ...],
) -> torch.Tensor:
    key = (role, shape, like.dtype, like.device, *place)
    if key not in buffers:
        buffers[key] = like.new_empty(shape)
    return buffers[key]
