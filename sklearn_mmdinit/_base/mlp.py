"""The built-in network: a multi-layer perceptron, an ordinary module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .validation import check_bool, check_choice, check_fits_in_memory, check_integer, check_widths

# In place where the gradient follows from the output alone.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}

INITS: dict[str, Callable[[torch.Tensor], object]] = {
    "xavier": nn.init.xavier_uniform_,
    "he": partial(nn.init.kaiming_normal_, mode="fan_in", nonlinearity="relu"),
}


# What users may choose of a perceptron's structure, by default the paper's.
PERCEPTRON_DEFAULTS: dict[str, Any] = {
    "hidden_layer_sizes": (392, 392, 392),
    "activation": "relu",
    "batch_norm": False,
}


def perceptron(
    n_features: Any, hidden_layer_sizes: Any, n_classes: Any, activation: Any, batch_norm: Any
) -> dict[str, Any]:
    """What describes a perceptron, checked."""
    check_integer("n_features", n_features)
    check_integer("n_classes", n_classes)
    check_choice("activation", activation, ACTIVATIONS)
    return {
        "n_features": int(n_features),
        "hidden_layer_sizes": check_widths(hidden_layer_sizes),
        "n_classes": int(n_classes),
        "activation": str(activation),
        "batch_norm": check_bool("batch_norm", batch_norm),
    }


class MLP(nn.Module):
    """A multi-layer perceptron that returns logits.

    Parameters
    ----------
    n_features : int
        Numbers of an input.
    hidden_layer_sizes : sequence of int
        Units of each hidden layer.
    n_classes : int
        Logits.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        What follows each hidden layer.
    batch_norm : bool, default=False
        Whether batch normalisation precedes the activations.
    init : {"xavier", "he"}, default="xavier"
        Fresh weights: Glorot uniform or Kaiming normal (fan-in); biases are 0.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import MLP
    >>> MLP(4, (8, 8), 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    # Files of theta0 name it, wherever it is defined.
    __module__ = "sklearn_mmdinit"

    def __init__(
        self,
        n_features: int,
        hidden_layer_sizes: Sequence[int],
        n_classes: int,
        activation: str = "relu",
        batch_norm: bool = False,
        init: str = "xavier",
    ) -> None:
        super().__init__()
        # What it is described by, wherever it was made.
        own = perceptron(n_features, hidden_layer_sizes, n_classes, activation, batch_norm)
        check_choice("init", init, INITS)
        self.keywords = own | {"init": str(init)}
        hidden_layer_sizes = own["hidden_layer_sizes"]
        widths = (n_features, *hidden_layer_sizes, n_classes)
        # With a gradient, and what Adam keeps of each.
        check_fits_in_memory(
            4 * sum(a * b for a, b in pairwise(widths)), f"a perceptron of {widths=}"
        )
        # skip_init: nn.Linear would draw weights of its own first.
        self.linears = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, n_in, n_out) for n_in, n_out in pairwise(widths)
        )
        normalised = hidden_layer_sizes if batch_norm else ()
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in normalised)
        self.activations = nn.ModuleList(ACTIVATIONS[activation]() for _ in hidden_layer_sizes)
        for linear in self.linears:
            assert isinstance(linear, nn.Linear)
            # In float32 whatever PyTorch's default: draws of another type are other numbers.
            drawn = torch.empty(linear.weight.shape, dtype=torch.float32)
            INITS[init](drawn)
            linear.weight.data.copy_(drawn)
            nn.init.zeros_(linear.bias)

    def layers(self) -> Iterator[nn.Module]:
        """The layers, in the order that the input passes them."""
        for number, activation in enumerate(self.activations):
            yield self.linears[number]
            if self.norms:
                yield self.norms[number]
            yield activation
        yield self.linears[-1]

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of inputs (n, n_features)."""
        for layer in self.layers():
            X = layer(X)
        return X
