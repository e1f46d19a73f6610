"""The shape of a network: widths, activation, batch normalisation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .activations import ACTIVATIONS

__all__ = ["Architecture"]


@dataclass(frozen=True)
class Architecture:
    """The shape of a multi-layer perceptron, from its input to its logits.

    Parameters
    ----------
    n_features : int
        Width of the input.
    hidden_layer_sizes : tuple of int
        Width of each hidden layer, the first one first.
    n_classes : int
        Number of logits, the paper's d.
    activation : {"relu", "tanh", "gelu"}, default="relu"
        Non-linearity of the hidden layers.
    batch_norm : bool, default=False
        Whether batch normalisation stands before each activation.

    Raises
    ------
    ValueError
        If the activation is none of these.
    """

    n_features: int
    hidden_layer_sizes: tuple[int, ...]
    n_classes: int
    activation: str = "relu"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"unknown activation={self.activation!r}; valid ones are {sorted(ACTIVATIONS)}"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Every width from the input to the logits."""
        return (self.n_features, *self.hidden_layer_sizes, self.n_classes)

    @property
    def n_layers(self) -> int:
        """Number of linear layers, the paper's L."""
        return len(self.widths) - 1

    @property
    def scaled_layers(self) -> tuple[str, ...]:
        """Names of the layers that a gain acts on, the last one included."""
        return tuple(f"linears.{layer}" for layer in range(self.n_layers))

    def array_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array of the network, PyTorch's orientation."""
        shapes: dict[str, tuple[int, ...]] = {}
        pairs = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        for layer, (n_in, n_out) in enumerate(pairs):
            shapes[f"linears.{layer}.weight"] = (n_out, n_in)
            shapes[f"linears.{layer}.bias"] = (n_out,)
        if self.batch_norm:
            for layer, width in enumerate(self.hidden_layer_sizes):
                for name in ("weight", "bias", "running_mean", "running_var"):
                    shapes[f"norms.{layer}.{name}"] = (width,)
        return shapes

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise a ValueError unless arrays have the names and shapes of the network's."""
        expected = self.array_shapes()
        if missing := sorted(expected.keys() - shapes.keys()):
            raise ValueError(
                f"arrays are missing: {missing}; a network with {self} has {sorted(expected)}"
            )
        if unknown := sorted(shapes.keys() - expected.keys()):
            raise ValueError(f"unknown arrays: {unknown}; valid names are {sorted(expected)}")
        for name, shape in expected.items():
            if (found := shapes[name]) != shape:
                raise ValueError(f"array {name!r} has shape {found}, expected {shape}")

    def to_json(self) -> str:
        """The architecture as a JSON object, the inverse of :meth:`from_json`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Architecture:
        """The architecture a JSON object describes.

        Raises
        ------
        ValueError
            If the text is not the JSON of an architecture.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            return cls(
                n_features=int(fields["n_features"]),
                hidden_layer_sizes=tuple(int(w) for w in fields["hidden_layer_sizes"]),
                n_classes=int(fields["n_classes"]),
                activation=str(fields["activation"]),
                batch_norm=bool(fields["batch_norm"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the description of an architecture: {text!r}") from error
