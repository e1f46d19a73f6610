"""Random initial weights.

A new kind is a line in :data:`INITS`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .architecture import Architecture
from .mlp import MLP, theta0_from_module
from .theta0 import Theta0

__all__ = ["INITS", "initialize_", "random_theta0"]


def _xavier_(weight: torch.Tensor, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


def _he_(weight: torch.Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_in", nonlinearity="relu", generator=generator)


INITS: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "xavier": _xavier_,
    "he": _he_,
}


def initialize_(module: MLP, init: str, generator: torch.Generator) -> MLP:
    """Draw fresh weights in place: Glorot uniform or Kaiming normal (fan-in), biases 0.

    Parameters
    ----------
    module : MLP
        The network to fill, on the CPU.
    init : {"xavier", "he"}
        Key of :data:`INITS`.
    generator : torch.Generator
        The only source of randomness.

    Returns
    -------
    MLP
        The same module.
    """
    with torch.no_grad():
        for linear in module.linear_layers:
            INITS[init](linear.weight, generator)
            linear.bias.zero_()
        for norm in module.norm_layers:
            norm.reset_parameters()
    return module


def random_theta0(architecture: Architecture, init: str, generator: torch.Generator) -> Theta0:
    """Fresh weights of a network, as :func:`initialize_` draws them."""
    return theta0_from_module(initialize_(MLP(architecture), init, generator))
