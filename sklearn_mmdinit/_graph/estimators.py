"""Transformers that a user brings: what they draw follows from a seed, and X stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

__all__ = ["on_read_only", "seed_"]


def on_read_only(name: str, function: Callable[[np.ndarray], Any], X: np.ndarray) -> Any:
    """What it makes of rows that are not to be written to: theta0 is learned from them too.

    Parameters
    ----------
    name : str
        What the error calls whose function it is.
    function : callable
        Of the rows.
    X : ndarray
        Rows.

    Raises
    ------
    ValueError
        If it writes into them all the same.
    """
    view = X.view()  # which a transformer with ``copy=False`` must copy
    view.flags.writeable = False
    try:
        return function(view)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise ValueError(
            f"{name} writes into the rows that it is given, which theta0 is learned from too: "
            f"{error}; let it copy them"
        ) from error


def seed_(estimator: Any, seed: int) -> None:
    """Let every ``random_state`` of None follow from the seed; not those of what is frozen."""
    if isinstance(estimator, FrozenEstimator):
        return
    parameters = estimator.get_params()
    frozen = [f"{name}__" for name, v in parameters.items() if isinstance(v, FrozenEstimator)]
    names = [
        name
        for name, value in sorted(parameters.items())
        if name.rpartition("__")[2] == "random_state"
        and value is None
        and not name.startswith(tuple(frozen))
    ]
    draws = np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=len(names))
    estimator.set_params(**dict(zip(names, draws.tolist(), strict=True)))
