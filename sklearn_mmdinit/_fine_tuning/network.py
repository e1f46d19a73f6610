"""What a net needs to know of its network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

__all__ = ["Network"]


@dataclass(frozen=True)
class Network:
    """What a net needs to know of the network that it trains.

    Parameters
    ----------
    module : callable
        Makes the module, at the weights that training starts from.
    arguments : dict
        Its keyword arguments.
    batch_norm : bool, default=False
        Whether it cannot train on a batch of one row.
    draws : bool, default=False
        Whether it draws from PyTorch's global generators, as dropout does.
    widths : tuple of int, optional
        Of its layers where it is a perceptron, by which threads are chosen.
    """

    module: Callable[..., nn.Module]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    batch_norm: bool = False
    draws: bool = False
    widths: tuple[int, ...] | None = None
