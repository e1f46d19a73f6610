"""Activations of the hidden layers, and their derivatives.

A new one is a line in :data:`ACTIVATIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["ACTIVATIONS", "Activation"]


@dataclass(frozen=True)
class Activation:
    """An element-wise non-linearity and its derivative.

    ``derivative`` must itself be differentiable by autograd wherever the activation has
    curvature: the input-output detachment loss is a function of Jacobians. ``homogeneous``
    says whether a(c x) = c a(x) for every c > 0.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    derivative: Callable[[torch.Tensor], torch.Tensor]
    homogeneous: bool = False


def _gelu_derivative(x: torch.Tensor) -> torch.Tensor:
    cdf = 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    pdf = torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)
    return cdf + x * pdf


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu, lambda x: (x > 0).to(x.dtype), homogeneous=True),
    "tanh": Activation(torch.tanh, lambda x: 1.0 - torch.tanh(x).square()),
    "gelu": Activation(nn.functional.gelu, _gelu_derivative),
}
