"""Theta0: the initial parameters of a network, as NumPy arrays with their architecture.

Fitted state is kept in NumPy arrays and never in tensors: equal arrays have equal
``joblib.hash``, pickle small, and reach worker processes as memory maps.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Architecture", "Theta0"]


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
    activation : str, default="relu"
        Key of :data:`sklearn_mmdinit._network.ACTIVATIONS`.
    batch_norm : bool, default=False
        Whether batch normalisation stands before each activation.
    """

    n_features: int
    hidden_layer_sizes: tuple[int, ...]
    n_classes: int
    activation: str = "relu"
    batch_norm: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Every width from the input to the logits."""
        return (self.n_features, *self.hidden_layer_sizes, self.n_classes)

    @property
    def n_layers(self) -> int:
        """Number of linear layers, the paper's L."""
        return len(self.widths) - 1

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


@dataclass(frozen=True, eq=False)
class Theta0:
    """Initial parameters and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture
        The network.
    arrays : dict of str to ndarray of float32
        One array for each name of ``architecture.array_shapes()``.

    Raises
    ------
    ValueError
        If a name is missing or unknown, or an array has another shape or holds
        a value that is not finite.
    """

    architecture: Architecture
    arrays: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        shapes = self.architecture.array_shapes()
        if missing := sorted(shapes.keys() - self.arrays.keys()):
            raise ValueError(
                f"arrays are missing: {missing}; a network with {self.architecture} "
                f"has {sorted(shapes)}"
            )
        if unknown := sorted(self.arrays.keys() - shapes.keys()):
            raise ValueError(f"unknown arrays: {unknown}; valid names are {sorted(shapes)}")
        for name, shape in shapes.items():
            if (found := np.shape(self.arrays[name])) != shape:
                raise ValueError(f"array {name!r} has shape {found}, expected {shape}")
            if not np.isfinite(self.arrays[name]).all():
                raise ValueError(f"array {name!r} holds NaN or infinity")

    @property
    def coefs(self) -> list[np.ndarray]:
        """Weights, one array of shape (n_in, n_out) a layer: scikit-learn's orientation."""
        return [self.arrays[f"linears.{i}.weight"].T for i in range(self.architecture.n_layers)]

    @property
    def intercepts(self) -> list[np.ndarray]:
        """Biases, one array of shape (n_out,) a layer."""
        return [self.arrays[f"linears.{i}.bias"] for i in range(self.architecture.n_layers)]
