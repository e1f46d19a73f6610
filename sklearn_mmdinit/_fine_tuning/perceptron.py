"""The multi-layer perceptron as what a classifier trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .._network import (
    Architecture,
    ModuleArchitecture,
    Theta0,
    as_arrays,
    module_from_theta0,
    random_theta0,
)
from .network import Network

__all__ = ["WantedPerceptron", "layer_sizes", "theta0_from_arrays"]

_DEFAULTS: dict[str, Any] = {
    "hidden_layer_sizes": (392, 392, 392),
    "activation": "relu",
    "batch_norm": False,
}

# Who is it that asks for a field of WantedPerceptron.
_WORDS = {
    "n_features": "X has",
    "n_classes": "y has",
    "hidden_layer_sizes": "the classifier was given",
    "activation": "the classifier was given",
    "batch_norm": "the classifier was given",
}


@dataclass(frozen=True)
class WantedPerceptron:
    """What the classifier and its data ask of a perceptron; None where they do not care.

    Parameters
    ----------
    n_features, n_classes : int
        Of X and of y.
    hidden_layer_sizes, activation, batch_norm : tuple of int, str and bool, optional
        Of the classifier.
    feature_names : tuple of str, optional
        Of X.
    init : {"xavier", "he"}
        How fresh weights are drawn.
    seed : int
        Of this draw.
    """

    n_features: int
    n_classes: int
    hidden_layer_sizes: tuple[int, ...] | None = None
    activation: str | None = None
    batch_norm: bool | None = None
    feature_names: tuple[str, ...] | None = None
    init: str = "xavier"
    seed: int = 0

    def check(self, theta0: Theta0) -> None:
        """Raise a ValueError where training cannot start at theta0."""
        architecture = theta0.architecture
        if isinstance(architecture, ModuleArchitecture):
            raise ValueError(
                f"the theta0 to start from is of the module {architecture.module}, but this "
                "classifier trains a multi-layer perceptron; use NetClassifier(module=...)"
            )
        self._check_fields(vars(architecture), "the theta0 to start from")

    def check_initializer(self, initializer: Any) -> None:
        """The same of what an initializer is about to learn, as far as its parameters show it."""
        parameters = initializer.get_params(deep=False)
        name = type(initializer).__name__
        if parameters.get("module") is not None:
            raise ValueError(
                f"the initializer {name} learns a module, but this classifier trains a "
                "multi-layer perceptron; use NetClassifier(module=...)"
            )
        found = {k: parameters[k] for k in ("n_classes", "activation", "batch_norm")}
        found["hidden_layer_sizes"] = layer_sizes(parameters["hidden_layer_sizes"])
        self._check_fields(found, f"the initializer {name}")

    def from_arrays(self, arrays: Mapping[str, Any]) -> Theta0:
        """The theta0 that named arrays hold."""
        return theta0_from_arrays(arrays, self.activation)

    def fresh(self) -> Theta0:
        """Random weights; what nobody cares about is as in the paper."""
        given = ((name, getattr(self, name)) for name in _DEFAULTS)
        chosen = _DEFAULTS | {name: value for name, value in given if value is not None}
        architecture = Architecture(self.n_features, n_classes=self.n_classes, **chosen)
        return random_theta0(architecture, self.init, torch.Generator().manual_seed(self.seed))

    def network(self, theta0: Theta0) -> Network:
        """The perceptron that starts at theta0."""
        architecture = theta0.architecture
        return Network(
            module_from_theta0,
            {"theta0": theta0},
            batch_norm=architecture.batch_norm,
            widths=architecture.widths,
        )

    def _check_fields(self, found: Mapping[str, Any], source: str) -> None:
        for name, words in _WORDS.items():
            wanted = getattr(self, name)
            if name in found and wanted is not None and found[name] != wanted:
                raise ValueError(
                    f"{source} has {name}={found[name]!r}, but {words} {name}={wanted!r}; "
                    "the two must be the same"
                )


def layer_sizes(value: Any) -> tuple[int, ...]:
    """Widths of the hidden layers, from a number or any sequence of numbers.

    Raises
    ------
    ValueError
        If a width is not a positive whole number.
    """
    try:
        widths = tuple(np.atleast_1d(np.asarray(value)).tolist())
        if all(isinstance(w, int) and not isinstance(w, bool) and w > 0 for w in widths):
            return widths
    except ValueError:  # ragged
        pass
    raise ValueError(f"hidden_layer_sizes must be positive integers, got {value!r}")


def theta0_from_arrays(arrays: Mapping[str, Any], activation: str | None = None) -> Theta0:
    """The theta0 that a dict of named arrays holds.

    Parameters
    ----------
    arrays : mapping of str to array-like
        Names as in ``Architecture.array_shapes()``: ``linears.0.weight`` of shape
        (n_out, n_in), ``linears.0.bias``, ... The widths are read from the shapes.
    activation : str, optional
        Arrays do not say it; "relu" by default.

    Returns
    -------
    Theta0
        The arrays, as float32.

    Raises
    ------
    ValueError
        If arrays are missing or do not fit each other.
    """
    # PyTorch counts batches beside the statistics; the counter is not learned.
    learned = {n: a for n, a in arrays.items() if not str(n).endswith(".num_batches_tracked")}
    named = {n: np.asarray(a, dtype=np.float32) for n, a in as_arrays(learned).items()}
    weights: list[np.ndarray] = []
    while (name := f"linears.{len(weights)}.weight") in named:
        weights.append(named[name])
        if weights[-1].ndim != 2:
            raise ValueError(
                f"array {name!r} has shape {weights[-1].shape}, expected (n_out, n_in)"
            )
    if not weights:
        raise ValueError(
            "warm_start_from is a dict without 'linears.0.weight'; valid names are "
            f"'linears.0.weight', 'linears.0.bias', 'linears.1.weight', ..., got {sorted(named)}"
        )
    architecture = Architecture(
        n_features=weights[0].shape[1],
        hidden_layer_sizes=tuple(weight.shape[0] for weight in weights[:-1]),
        n_classes=weights[-1].shape[0],
        activation=activation or "relu",
        batch_norm=any(str(name).startswith("norms.") for name in named),
    )
    return Theta0(architecture, named)
