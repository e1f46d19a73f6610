"""The multi-layer perceptron as a PyTorch module, to and from theta0."""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import nn

from .activations import ACTIVATIONS
from .architecture import Architecture
from .module_state import uncompiled
from .theta0 import Theta0

__all__ = ["BATCH_NORM_EPS", "MLP", "module_from_theta0", "theta0_from_module"]

# Added to variances by batch normalisation; PyTorch's default.
BATCH_NORM_EPS = 1e-5


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
            nn.utils.skip_init(nn.Linear, n_in, n_out, dtype=torch.float32)
            for n_in, n_out in pairwise(widths)
        )
        norm_widths = architecture.hidden_layer_sizes if architecture.batch_norm else ()
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(width, eps=BATCH_NORM_EPS, dtype=torch.float32) for width in norm_widths
        )

    @property
    def linear_layers(self) -> list[nn.Linear]:
        """The linear layers, from the input to the logits."""
        return cast("list[nn.Linear]", list(self.linears))

    @property
    def norm_layers(self) -> list[nn.BatchNorm1d]:
        """Batch normalisation of each hidden layer; empty where there is none."""
        return cast("list[nn.BatchNorm1d]", list(self.norms))

    @property
    def n_last_biases(self) -> int:
        """Biases of the last layer that are perturbed."""
        return self.architecture.n_classes

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


def theta0_from_module(module: MLP) -> Theta0:
    """The parameters of a module, compiled or not, as NumPy arrays; copies, on the CPU."""
    module = uncompiled(module)
    names = module.architecture.array_shapes()
    state = module.state_dict()
    arrays = {name: state[name].detach().cpu().numpy().copy() for name in names}
    return Theta0(module.architecture, arrays)


def module_from_theta0(theta0: Theta0, device: str | torch.device = "cpu") -> MLP:
    """A fresh module that starts at theta0; the arrays are copied.

    Raises
    ------
    ValueError
        If theta0 is of no multi-layer perceptron.
    """
    if not isinstance(theta0.architecture, Architecture):
        raise ValueError(
            f"theta0 is of the module {theta0.architecture.module}, not of a multi-layer "
            "perceptron; to_module() of its initializer starts there"
        )
    module = MLP(theta0.architecture)
    # copy: the arrays may be read-only memory maps in a worker process.
    state = {name: torch.tensor(array) for name, array in theta0.arrays.items()}
    module.load_state_dict(state, strict=False)  # num_batches_tracked is a counter, not learned
    return module.to(device)
