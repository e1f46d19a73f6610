"""Theta0: the initial parameters of a network, as NumPy arrays with their architecture.

Fitted state is kept in NumPy arrays and never in tensors: equal arrays have equal
``joblib.hash``, pickle small, and reach worker processes as memory maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .architecture import Architecture
from .module_architecture import ModuleArchitecture

__all__ = ["Theta0"]


@dataclass(frozen=True, eq=False)
class Theta0:
    """Initial parameters and the architecture they belong to.

    Parameters
    ----------
    architecture : Architecture or ModuleArchitecture
        The network.
    arrays : dict of str to ndarray
        One array of float32 for each name of ``architecture.array_shapes()``; of a module, what
        its ``state_dict`` holds, buffers of other types included.
    gain : tuple of float, default=()
        By what each hidden layer's weights were multiplied after pre-training, the function
        being the same; empty: by nothing.

    Raises
    ------
    ValueError
        If a name is missing or unknown, an array has another shape or holds NaN or, of a
        perceptron, infinity, or the gain has another length than there are hidden layers.
    """

    architecture: Architecture | ModuleArchitecture
    arrays: dict[str, np.ndarray]
    gain: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        kept = {name: self._kept(name, array) for name, array in self.arrays.items()}
        object.__setattr__(self, "arrays", kept)
        self.architecture.check({name: np.shape(array) for name, array in self.arrays.items()})
        n_hidden = max(len(self.architecture.scaled_layers) - 1, 0)
        if self.gain and len(self.gain) != n_hidden:
            raise ValueError(f"gain={self.gain} must have one number for each of {n_hidden} layers")
        of_module = isinstance(self.architecture, ModuleArchitecture)
        for name, array in self.arrays.items():
            # A module may keep a mask of -inf among its arrays.
            if np.isnan(array).any() if of_module else not np.isfinite(array).all():
                raise ValueError(f"array {name!r} holds NaN{'' if of_module else ' or infinity'}")

    def _kept(self, name: str, array: Any) -> np.ndarray:
        """An array in float32; of a module, what is not of floats as it is."""
        kept, of_perceptron = np.asarray(array), isinstance(self.architecture, Architecture)
        if kept.dtype.kind not in ("biuf" if of_perceptron else "biufc"):
            raise ValueError(f"array {name!r} must hold numbers, got dtype {kept.dtype}")
        if of_perceptron or kept.dtype.kind == "f":
            with np.errstate(over="ignore"):  # told as infinity
                kept = kept.astype(np.float32, copy=False)
        return kept

    @property
    def coefs(self) -> list[np.ndarray]:
        """Weights, a copy of shape (n_in, n_out) a layer: scikit-learn's orientation."""
        return [np.copy(self.arrays[f"{layer}.weight"].T) for layer in self._linear_layers()]

    @property
    def intercepts(self) -> list[np.ndarray]:
        """Biases, a copy of shape (n_out,) a layer."""
        return [np.copy(self.arrays[f"{layer}.bias"]) for layer in self._linear_layers()]

    def _linear_layers(self) -> tuple[str, ...]:
        if isinstance(self.architecture, ModuleArchitecture):
            raise AttributeError(
                "only a multi-layer perceptron has coefs and intercepts; this theta0 is of the "
                f"module {self.architecture.module}, with the arrays {sorted(self.arrays)}"
            )
        return self.architecture.scaled_layers
