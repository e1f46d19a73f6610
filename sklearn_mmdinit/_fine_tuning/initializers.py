"""Initializers known by what they can do, and copies of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Real
from typing import Any

from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from .._network import Theta0

__all__ = ["is_fitted_initializer", "is_initializer", "unfrozen", "with_params"]

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


def with_params(source: Any, params: Mapping[str, Any]) -> Any:
    """An initializer with other parameters, of which there is no trace on `source`.

    Parameters
    ----------
    source : initializer
        Fitted, frozen or neither.
    params : mapping of str to object
        Values by name.

    Returns
    -------
    initializer
        `source` itself where no value is another one. Fitted as it was where the others only
        concern learning once more, which is how an ensemble seeds its members; else unfitted.
    """
    known = source.get_params(deep=True)
    changed = {k: v for k, v in params.items() if k not in known or not _same(v, known[k])}
    if not changed:
        return source
    if is_fitted_initializer(source) and all(map(_is_of_learning_alone, changed)):
        copied = copy.copy(source)
        for part in {name.partition("__")[0] for name in changed if "__" in name}:
            setattr(copied, part, clone(known[part]))
        return copied.set_params(**changed)
    copied = clone(source)
    # A FrozenEstimator is its own clone.
    copied = copy.copy(source) if copied is source else copied
    return copied.set_params(**changed)


def _is_of_learning_alone(name: str) -> bool:
    """Whether theta0 that was learned already does not depend on a parameter any more."""
    return name == "verbose" or name.split("__")[-1] == "random_state"


def _same(one: Any, other: Any) -> bool:
    plain = isinstance(one, str | Real) and type(one) is type(other)
    return one is other or (plain and bool(one == other))
