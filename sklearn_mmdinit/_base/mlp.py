"""The built-in network: a multi-layer perceptron, an ordinary module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from .validation import check_argument, check_widths, integers, one_of

# None of them works in place, because hooks need the outputs of layers, for example to explain
# predictions.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
}

INITS: dict[str, Callable[[torch.Tensor], object]] = {
    "xavier": nn.init.xavier_uniform_,
    "he": partial(nn.init.kaiming_normal_, mode="fan_in", nonlinearity="relu"),
}


# Parameters of a perceptron's structure that users may choose, with the paper's values.
PERCEPTRON_DEFAULTS: dict[str, Any] = {
    "hidden_layer_sizes": (392, 392, 392),
    "activation": "relu",
    "batch_norm": False,
}


def checked_structure(
    n_features: Any, hidden_layer_sizes: Any, n_classes: Any, activation: Any, batch_norm: Any
) -> dict[str, Any]:
    """The checked arguments that determine the structure of an :class:`MLP`."""
    check_argument("n_features", n_features, integers(1))
    check_argument("n_classes", n_classes, integers(1))
    check_argument("activation", activation, one_of(ACTIVATIONS))
    check_argument("batch_norm", batch_norm, "boolean")
    return {
        "n_features": int(n_features),
        "hidden_layer_sizes": check_widths(hidden_layer_sizes),
        "n_classes": int(n_classes),
        "activation": str(activation),
        "batch_norm": bool(batch_norm),
    }


class MLP(nn.Module):
    """A multi-layer perceptron that returns logits.

    Parameters
    ----------
    n_features : int
        Number of inputs.
    hidden_layer_sizes : sequence of int
        Number of units of each hidden layer.
    n_classes : int
        Number of logits.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Activation of the hidden layers.
    batch_norm : bool, default=False
        Whether to normalize each mini-batch before the activations.
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
        hidden_layer_sizes: Sequence[int],
        n_classes: int,
        activation: str = "relu",
        batch_norm: bool = False,
        init: str = "xavier",
    ) -> None:
        super().__init__()
        keywords = checked_structure(
            n_features, hidden_layer_sizes, n_classes, activation, batch_norm
        )
        check_argument("init", init, one_of(INITS))
        # Theta0 describes the module by these.
        self.keywords = keywords | {"init": str(init)}
        hidden_layer_sizes = keywords["hidden_layer_sizes"]
        widths = (n_features, *hidden_layer_sizes, n_classes)
        # On the meta device, where nn.Linear draws no weights of its own.
        self.linears = nn.ModuleList(
            nn.Linear(n_in, n_out, device="meta") for n_in, n_out in pairwise(widths)
        )
        normalized = hidden_layer_sizes if batch_norm else ()
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in normalized)
        self.activations = nn.ModuleList(ACTIVATIONS[activation]() for _ in hidden_layer_sizes)
        for linear in self.linears:
            assert isinstance(linear, nn.Linear)
            # Always draws in float32, because other types give other random numbers.
            weight = torch.empty(linear.weight.shape, dtype=torch.float32)
            INITS[init](weight)
            linear.weight = nn.Parameter(weight.to(torch.get_default_dtype()))
            linear.bias = nn.Parameter(torch.zeros(linear.out_features))

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


def mlp_without_weights(keywords: Mapping[str, Any]) -> MLP:
    """An :class:`MLP` on the meta device: its arrays have names and shapes, but no numbers."""
    with torch.device("meta"):
        return MLP(**keywords)
