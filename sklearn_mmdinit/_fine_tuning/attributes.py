"""What a fitted classifier tells of its net."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["NetAttributes"]


class NetAttributes:
    """What a fitted estimator tells of its ``net_``, always of the net's present state."""

    net_: Any
    best_validation_loss_: float | None

    def _net_for(self, name: str) -> Any:
        """The net; an AttributeError that names what was asked for where there is none yet."""
        if "net_" not in vars(self):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r} before it is fitted"
            )
        return self.net_

    @property
    def module_(self) -> nn.Module:
        """The network."""
        module: nn.Module = self._net_for("module_").module_
        return module

    @property
    def history_(self) -> Any:
        """Skorch's record of each epoch."""
        return self._net_for("history_").history_

    @property
    def loss_curve_(self) -> list[float]:
        """Training loss an epoch."""
        return [epoch["train_loss"] for epoch in self._net_for("loss_curve_").history_]

    @property
    def validation_loss_curve_(self) -> list[float] | None:
        """Validation loss an epoch, or None without validation."""
        net = self._net_for("validation_loss_curve_")
        if self.best_validation_loss_ is None:
            return None
        return [epoch["valid_loss"] for epoch in net.history_]
