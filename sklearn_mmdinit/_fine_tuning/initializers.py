"""Initializers known by what they can do, and copies of them."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from .._network import Theta0

__all__ = ["editable_copy", "is_fitted_initializer", "is_initializer", "unfrozen"]

_ARCHITECTURE_PARAMETERS = {"hidden_layer_sizes", "n_classes", "activation", "batch_norm"}


def unfrozen(source: Any) -> Any:
    """What a FrozenEstimator wraps; anything else is itself."""
    return source.estimator if isinstance(source, FrozenEstimator) else source


def is_initializer(source: Any) -> bool:
    """Whether an object is an initializer, fitted or not: by what it can do, not by its class."""
    source = unfrozen(source)
    if isinstance(source, type) or not (hasattr(source, "get_params") and hasattr(source, "fit")):
        return False
    parameters = source.get_params(deep=False)
    return isinstance(getattr(source, "theta0_", None), Theta0) or (
        parameters.keys() >= _ARCHITECTURE_PARAMETERS
    )


def is_fitted_initializer(source: Any) -> bool:
    """Whether an object is an initializer that has learned its theta0."""
    return is_initializer(source) and isinstance(getattr(source, "theta0_", None), Theta0)


def editable_copy(source: Any) -> Any:
    """A copy whose parameters can be set without a trace on `source`; fitted state is dropped."""
    copied = clone(source)
    # A FrozenEstimator is its own clone.
    return copy.copy(source) if copied is source else copied
