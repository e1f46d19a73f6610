"""Skorch callbacks: the one that keeps the best epoch, and which of a caller's are valid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from skorch.callbacks import Callback

__all__ = ["BestEpoch", "check_callbacks"]


class BestEpoch(Callback):
    """Keep the parameters of the epoch with the lowest validation loss, in memory.

    Attributes
    ----------
    epoch_ : int or None
        The best epoch, counted from 0.
    loss_ : float
        Its validation loss.
    """

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        """Forget the run before."""
        self.epoch_: int | None = None
        self.loss_ = math.inf
        self._kept: list[torch.Tensor] = []

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Copy the parameters where they are the best so far."""
        loss = net.history[-1].get("valid_loss", math.nan)
        if not loss < self.loss_:
            return
        self.epoch_, self.loss_ = len(net.history) - 1, loss
        state = self._state(net)
        if not self._kept:
            self._kept = [torch.empty_like(tensor) for tensor in state]
        self._copy(self._kept, state)

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Put the best parameters back, and let go of the copy."""
        if self._kept:
            self._copy(self._state(net), self._kept)
        self._kept = []

    @staticmethod
    def _state(net: Any) -> list[torch.Tensor]:
        # A module may keep what it likes beside its tensors.
        values = net.module_.state_dict().values()
        return [value for value in values if isinstance(value, torch.Tensor)]

    @staticmethod
    def _copy(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source)


def check_callbacks(callbacks: Any) -> None:
    """Raise a ValueError that names the first item that is no callback."""
    if callbacks is None:
        return
    if not isinstance(callbacks, list | tuple):
        raise ValueError(f"callbacks must be a list of skorch callbacks or None, got {callbacks!r}")
    for item in callbacks:
        named = isinstance(item, list | tuple)
        right = not named or (len(item) == 2 and isinstance(item[0], str))
        if not (right and _is_callback(item[1] if named else item, named)):
            raise ValueError(
                "callbacks must hold skorch callbacks, or pairs of a name and one (None: no "
                f"callback of this name), got {item!r} among them"
            )


def _is_callback(item: Any, named: bool) -> bool:
    if isinstance(item, type):
        return issubclass(item, Callback)
    return isinstance(item, Callback) or (named and item is None)
