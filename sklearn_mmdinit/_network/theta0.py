"""Theta0: the initial parameters of a network, as NumPy arrays with their architecture.

Fitted state is kept in NumPy arrays and never in tensors: equal arrays have equal
``joblib.hash``, pickle small, and reach worker processes as memory maps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .architecture import Architecture

__all__ = ["Theta0"]


@dataclass(frozen=True, eq=False)
class Theta0:
    """Initial parameters and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture
        The network.
    arrays : dict of str to ndarray of float32
        One array for each name of ``architecture.array_shapes()``.
    gain : tuple of float, default=()
        By what each hidden layer's weights were multiplied after pre-training, the function
        being the same; empty: by nothing.

    Raises
    ------
    ValueError
        If a name is missing or unknown, an array has another shape or holds a value that is
        not finite, or the gain has another length than there are hidden layers.
    """

    architecture: Architecture
    arrays: dict[str, np.ndarray]
    gain: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        shapes = self.architecture.array_shapes()
        if missing := sorted(shapes.keys() - self.arrays.keys()):
            raise ValueError(
                f"arrays are missing: {missing}; a network with {self.architecture} "
                f"has {sorted(shapes)}"
            )
        if unknown := sorted(self.arrays.keys() - shapes.keys()):
            raise ValueError(f"unknown arrays: {unknown}; valid names are {sorted(shapes)}")
        n_hidden = len(self.architecture.hidden_layer_sizes)
        if self.gain and len(self.gain) != n_hidden:
            raise ValueError(f"gain={self.gain} must have one number for each of {n_hidden} layers")
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
