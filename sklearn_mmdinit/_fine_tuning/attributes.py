"""What a fitted classifier tells of its net."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["NetAttributes"]


class NetAttributes:
    """What a fitted estimator tells of its ``net_``, always of the net's present state."""

    net_: Any
    best_validation_loss_: float | None

    @property
    def module_(self) -> nn.Module:
        """The network."""
        module: nn.Module = self.net_.module_
        return module

    @property
    def history_(self) -> Any:
        """Skorch's record of each epoch."""
        return self.net_.history_

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss an epoch."""
        return [epoch["train_loss"] for epoch in self.history_]

    @property
    def validation_loss_curve_(self) -> list[float] | None:
        """Validation loss an epoch, or None without validation."""
        if self.best_validation_loss_ is None:
            return None
        return [epoch["valid_loss"] for epoch in self.history_]
