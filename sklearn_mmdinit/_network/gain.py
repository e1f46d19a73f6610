r"""Gain: larger hidden weights that compute the same function.

With an activation that is positively homogeneous, :math:`a(c x) = c\, a(x)` for c > 0, a network
computes the same when a hidden layer's weights are multiplied by c and the last layer's divided
by it. Fine-tuning is not the same: Adam moves every weight by about its learning rate, whatever
the weight's size. Larger weights stay nearer to what was learned, and larger activations let
the last layer answer in fewer steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .activations import ACTIVATIONS
from .architecture import Architecture
from .module_architecture import ModuleArchitecture
from .theta0 import Theta0

__all__ = ["has_gain", "scales_freely", "with_gain", "without_gain"]


def scales_freely(activation: str, batch_norm: bool) -> bool:
    """Whether hidden weights can be scaled without changing the function.

    Batch normalisation takes every scale out again.
    """
    return ACTIVATIONS[activation].homogeneous and not batch_norm


def has_gain(architecture: Architecture | ModuleArchitecture) -> bool:
    """Whether hidden weights of such a network can be scaled without changing the function."""
    if isinstance(architecture, ModuleArchitecture):
        return bool(architecture.chain)
    return scales_freely(architecture.activation, architecture.batch_norm)


def with_gain(theta0: Theta0, factors: Sequence[float]) -> Theta0:
    """Theta0 with the weights of its hidden layers scaled, and the same function.

    Parameters
    ----------
    theta0 : Theta0
        Of a network for which :func:`has_gain` holds, unless all factors are 1.
    factors : sequence of float
        What each hidden layer's weights are multiplied by, the first one first; above 0. A
        layer's biases get the product of its own factor and those before it, and the last
        layer's weights are divided by the product of all.

    Returns
    -------
    Theta0
        `theta0` itself where all factors are 1; else one whose ``gain`` tells of it.

    Raises
    ------
    ValueError
        If the factors are not one for each hidden layer, would change the function, or make
        a weight too large for float32.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture, Theta0
    >>> architecture = Architecture(n_features=1, hidden_layer_sizes=(1,), n_classes=2)
    >>> shapes = architecture.array_shapes()
    >>> theta0 = Theta0(architecture, {name: np.ones(shapes[name]) for name in shapes})
    >>> [weights.tolist() for weights in with_gain(theta0, [4.0]).coefs]
    [[[4.0]], [[0.25, 0.25]]]
    """
    n_hidden = max(len(theta0.architecture.scaled_layers) - 1, 0)
    if len(factors) != n_hidden:
        raise ValueError(f"gain={tuple(factors)} must have {n_hidden} factors, one a hidden layer")
    if all(factor == 1.0 for factor in factors):
        return theta0
    if not has_gain(theta0.architecture):
        raise ValueError(
            f"gain={tuple(factors)} would change the function of a network with "
            f"{theta0.architecture}"
        )
    before = theta0.gain or (1.0,) * n_hidden
    gain = tuple(float(old * new) for old, new in zip(before, factors, strict=True))
    return Theta0(theta0.architecture, _scaled(theta0, factors), gain)


def without_gain(theta0: Theta0) -> Theta0:
    """Theta0 as pre-training left it: perturbations of a fixed size mean something else later."""
    if not theta0.gain:
        return theta0
    factors = [1.0 / factor for factor in theta0.gain]
    return Theta0(theta0.architecture, _scaled(theta0, factors))


def _scaled(theta0: Theta0, factors: Sequence[float]) -> dict[str, np.ndarray]:
    scales, total = {}, 1.0
    *hidden, last = theta0.architecture.scaled_layers
    for layer, factor in zip(hidden, factors, strict=True):
        total *= factor
        scales[f"{layer}.weight"] = factor
        scales[f"{layer}.bias"] = total
    scales[f"{last}.weight"] = 1.0 / total
    with np.errstate(over="ignore"):  # told below
        scaled = {
            name: (array * scales[name]).astype(array.dtype) if name in scales else array
            for name, array in theta0.arrays.items()
        }
    if wrong := [name for name in scales if not np.isfinite(scaled.get(name, 0.0)).all()]:
        raise ValueError(
            f"gain={tuple(factors)} makes weights too large for float32, in {wrong[0]!r}; use "
            "factors nearer to 1"
        )
    return scaled
