"""The theta0 of a network that starts from nothing learned."""

from __future__ import annotations

from typing import Any

import torch

from .._network import Architecture, Theta0, random_theta0
from .wanted import Wanted

__all__ = ["fresh_theta0"]

_DEFAULTS: dict[str, Any] = {
    "hidden_layer_sizes": (392, 392, 392),
    "activation": "relu",
    "batch_norm": False,
}


def fresh_theta0(wanted: Wanted, init: str, seed: int) -> Theta0:
    """Random weights of the wanted network; what nobody cares about is as in the paper.

    Parameters
    ----------
    wanted : Wanted
        Fields that are None take the defaults.
    init : {"xavier", "he"}
        How weights are drawn.
    seed : int
        Of the draw.

    Returns
    -------
    Theta0
        The weights.
    """
    given = ((name, getattr(wanted, name)) for name in _DEFAULTS)
    chosen = _DEFAULTS | {name: value for name, value in given if value is not None}
    architecture = Architecture(wanted.n_features, n_classes=wanted.n_classes, **chosen)
    return random_theta0(architecture, init, torch.Generator().manual_seed(seed))
