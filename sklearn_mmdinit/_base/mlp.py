"""The built-in network: a multi-layer perceptron, an ordinary module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .validation import check_argument, check_widths, integers, one_of

# The layer of each activation. None of them works in place, because hooks need the outputs of
# layers, for example to explain predictions.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}

INITS: dict[str, Callable[[torch.Tensor], object]] = {
    "xavier": nn.init.xavier_uniform_,
    "he": partial(nn.init.kaiming_normal_, mode="fan_in", nonlinearity="relu"),
}


class MLP(nn.Module):
    """A multi-layer perceptron that returns logits.

    Parameters
    ----------
    n_features : int
        Number of inputs.
    hidden_layer_sizes : int or sequence of int
        Number of units of each hidden layer.
    n_classes : int
        Number of logits.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Activation of the hidden layers.
    init : {"xavier", "he"}, default="xavier"
        Random initial weights: Glorot uniform or Kaiming normal (fan-in); biases are 0.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import MLP
    >>> MLP(4, (8, 8), 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    # Files of theta0 store this name. It is fixed, so that the class may move to another file.
    __module__ = "sklearn_mmdinit"

    def __init__(
        self,
        n_features: int,
        hidden_layer_sizes: int | Sequence[int],
        n_classes: int,
        activation: str = "relu",
        init: str = "xavier",
    ) -> None:
        super().__init__()
        check_argument("n_features", n_features, integers(1))
        check_argument("n_classes", n_classes, integers(1))
        check_argument("activation", activation, one_of(ACTIVATIONS))
        check_argument("init", init, one_of(INITS))
        widths = int(n_features), *check_widths(hidden_layer_sizes), int(n_classes)
        # Theta0 describes the module by these.
        self.keywords: dict[str, Any] = {
            "n_features": widths[0],
            "hidden_layer_sizes": widths[1:-1],
            "n_classes": widths[-1],
            "activation": str(activation),
            "init": str(init),
        }
        # On the meta device, where nn.Linear draws no weights of its own.
        self.linears = nn.ModuleList(
            nn.Linear(n_in, n_out, device="meta") for n_in, n_out in pairwise(widths)
        )
        self.activations = nn.ModuleList(ACTIVATIONS[activation]() for _ in widths[1:-1])
        for linear in self.linears:
            assert isinstance(linear, nn.Linear)
            # Always draws in float32, because other types give other random numbers.
            weight = torch.empty(linear.weight.shape, dtype=torch.float32)
            INITS[init](weight)
            linear.weight = nn.Parameter(weight.to(torch.get_default_dtype()))
            linear.bias = nn.Parameter(torch.zeros(linear.out_features))

    def layers(self) -> Iterator[nn.Module]:
        """The layers, in the order that the input passes them."""
        for linear, activation in zip(self.linears[:-1], self.activations, strict=True):
            yield from (linear, activation)
        yield self.linears[-1]

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of inputs (n, n_features)."""
        for layer in self.layers():
            X = layer(X)
        return X
