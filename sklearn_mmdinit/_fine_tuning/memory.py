"""theta0s that were learned before, in a joblib.Memory."""

from __future__ import annotations

import pickle
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_memory
from torch import nn

from .._network import arrays_of, qualified_name

__all__ = ["remembered"]


def remembered(initializer: Any, X: Any, memory: Any) -> Any:
    """The initializer fitted to X, from memory where one like it was fitted to the same.

    Parameters
    ----------
    initializer : estimator
        Unfitted.
    X : array
        Rows to learn from.
    memory : str or joblib.Memory
        Where fitted ones are kept.

    Raises
    ------
    ValueError
        If a parameter cannot be pickled, so that it could not be known again.
    """
    try:
        fit = check_memory(memory).cache(_fit, ignore=["initializer"])
        return fit(initializer, _known_by(initializer), X)
    except pickle.PicklingError as error:
        names = _unpicklable(initializer)
        if not names:
            raise
        raise ValueError(
            f"memory={memory!r} finds theta0 again by the initializer's parameters, and of "
            f"{type(initializer).__name__} these cannot be pickled: {', '.join(names)}; a lambda "
            "cannot, a function of a module can; or use memory=None"
        ) from error


def _fit(initializer: Any, known_by: Any, X: Any) -> Any:
    """Fit an initializer: a function of its own, so that joblib.Memory can remember it."""
    return initializer.fit(X)


def _known_by(value: Any) -> Any:
    """What a value has in common with its copies, which joblib tells apart where it is a module."""
    if isinstance(value, nn.Module):
        return _layers_of(value), arrays_of(value)
    if isinstance(value, FrozenEstimator):
        fitted = value.estimator
        # Its parameters and what it has learned; of another estimator all there is.
        known = hasattr(fitted, "theta0_")
        return (_known_by(fitted), fitted.theta0_.arrays) if known else fitted
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return qualified_name(value), {name: _known_by(v) for name, v in parameters.items()}
    if isinstance(value, list | tuple):  # the steps of a pipeline
        return [_known_by(item) for item in value]
    return value


def _layers_of(module: nn.Module) -> list[tuple[Any, ...]]:
    """Name, class, mode and own attributes of each layer, all of it but arrays."""
    of_any = vars(nn.Module()).keys()
    return [
        (
            name,
            qualified_name(layer),
            layer.training,
            {key: value for key, value in vars(layer).items() if key not in of_any},
        )
        for name, layer in module.named_modules()
    ]


def _unpicklable(initializer: Any) -> list[str]:
    """Names of the parameters that cannot be pickled, but of those that have parameters."""
    names = []
    for name, value in initializer.get_params().items():
        if isinstance(value, BaseEstimator | list | tuple):
            continue
        try:
            pickle.dumps(value)
        except Exception:  # which one depends on what it is
            names.append(name)
    return names
