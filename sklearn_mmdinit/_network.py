"""The multi-layer perceptron, its activations and its random initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn

from ._theta0 import Architecture, Theta0

__all__ = [
    "ACTIVATIONS",
    "INITS",
    "MLP",
    "Activation",
    "initialize_",
    "module_from_theta0",
    "theta0_from_module",
    "torch_device",
]


@dataclass(frozen=True)
class Activation:
    """An element-wise non-linearity and its derivative.

    ``derivative`` must itself be differentiable by autograd wherever the activation has
    curvature: the input-output detachment loss is a function of Jacobians.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    derivative: Callable[[torch.Tensor], torch.Tensor]


def torch_device(device: Any) -> torch.device:
    """The device a name stands for; "auto" takes CUDA where there is one.

    Raises
    ------
    ValueError
        If PyTorch does not know the name, or cannot compute there.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # The sum makes sure that there is such a device here, and that it holds numbers.
        torch.zeros(1, device=device).sum().item()
        return torch.device(device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        raise ValueError(
            "device must be 'auto' or a device that PyTorch has here ('cpu', 'cuda', ...), "
            f"got {device!r}"
        ) from error


def _gelu_derivative(x: torch.Tensor) -> torch.Tensor:
    cdf = 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    pdf = torch.exp(-0.5 * x.square()) / math.sqrt(2.0 * math.pi)
    return cdf + x * pdf


# Added to variances by batch normalisation; PyTorch's default.
BATCH_NORM_EPS = 1e-5

ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(torch.relu, lambda x: (x > 0).to(x.dtype)),
    "tanh": Activation(torch.tanh, lambda x: 1.0 - torch.tanh(x).square()),
    "gelu": Activation(nn.functional.gelu, _gelu_derivative),
}


def _xavier_(weight: torch.Tensor, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


def _he_(weight: torch.Tensor, generator: torch.Generator) -> None:
    nn.init.kaiming_normal_(weight, mode="fan_in", nonlinearity="relu", generator=generator)


INITS: dict[str, Callable[[torch.Tensor, torch.Generator], None]] = {
    "xavier": _xavier_,
    "he": _he_,
}


class MLP(nn.Module):
    """A multi-layer perceptron that returns logits.

    Parameters
    ----------
    architecture : Architecture
        Widths, activation and whether batch normalisation stands before each activation.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        widths = architecture.widths
        # skip_init: nn.Linear's own initialisation would draw from the global generator.
        self.linears = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, n_in, n_out) for n_in, n_out in pairwise(widths)
        )
        norm_widths = architecture.hidden_layer_sizes if architecture.batch_norm else ()
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width, eps=BATCH_NORM_EPS) for width in norm_widths
        )

    @property
    def linear_layers(self) -> list[nn.Linear]:
        """The linear layers, from the input to the logits."""
        return cast("list[nn.Linear]", list(self.linears))

    @property
    def norm_layers(self) -> list[nn.BatchNorm1d]:
        """Batch normalisation of each hidden layer; empty where there is none."""
        return cast("list[nn.BatchNorm1d]", list(self.norms))

    def hidden_layers(self, X: torch.Tensor) -> list[torch.Tensor]:
        """Activations (n, width) of each hidden layer."""
        function = ACTIVATIONS[self.architecture.activation].function
        layers = []
        for layer, linear in enumerate(self.linear_layers[:-1]):
            X = linear(X)
            if self.architecture.batch_norm:
                X = self.norm_layers[layer](X)
            X = function(X)
            layers.append(X)
        return layers

    def hidden(self, X: torch.Tensor) -> torch.Tensor:
        """Activations of the last hidden layer, (n, width); X itself without hidden layers."""
        return [X, *self.hidden_layers(X)][-1]

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of inputs (n, n_features)."""
        logits: torch.Tensor = self.linears[-1](self.hidden(X))
        return logits


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


def theta0_from_module(module: MLP) -> Theta0:
    """The parameters of a module as NumPy arrays; copies, on the CPU."""
    names = module.architecture.array_shapes()
    state = module.state_dict()
    arrays = {name: state[name].detach().cpu().numpy().copy() for name in names}
    return Theta0(module.architecture, arrays)


def module_from_theta0(theta0: Theta0, device: str | torch.device = "cpu") -> MLP:
    """A fresh module that starts at theta0; the arrays are copied."""
    module = MLP(theta0.architecture)
    # copy: the arrays may be read-only memory maps in a worker process.
    state = {name: torch.tensor(array) for name, array in theta0.arrays.items()}
    module.load_state_dict(state, strict=False)  # num_batches_tracked is a counter, not learned
    return module.to(device)
