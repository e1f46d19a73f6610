"""theta0s that were learned before, in a joblib.Memory."""

from __future__ import annotations

import inspect
import pickle
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_memory
from torch import nn

from .._network import arrays_of, as_arrays, qualified_name

__all__ = ["remembered"]

# Where a layer keeps functions that are called before it and after it.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_FUNCTIONS = (FunctionType, MethodType, partial)


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
        return _layers_of(value), arrays_of(value), _ties_of(value)
    if isinstance(value, FrozenEstimator):
        fitted = value.estimator
        # Its parameters and what it has learned; of another estimator all there is.
        learned = fitted.theta0_.arrays if hasattr(fitted, "theta0_") else fitted
        return _known_by(fitted), learned
    if isinstance(value, BaseEstimator):
        parameters = value.get_params(deep=False)
        return qualified_name(value), {name: _known_by(v) for name, v in parameters.items()}
    if isinstance(value, list | tuple):  # the steps of a pipeline
        return [_known_by(item) for item in value]
    if isinstance(value, dict):
        return {name: _known_by(item) for name, item in value.items()}
    if isinstance(value, partial):
        return _known_by(value.func), value.args, value.keywords
    if isinstance(value, MethodType):
        owner = value.__self__  # a module in most cases, whose layers are known
        known = qualified_name(owner) if isinstance(owner, nn.Module) else owner
        return known, value.__func__.__qualname__, _code_of(value.__func__)
    if isinstance(value, FunctionType):
        # Of a decorated one, also what is inside.
        return value, _code_of(value), _code_of(inspect.unwrap(value))
    return value


def _code_of(function: Any) -> Any:
    """What a function does, but for the globals that it reads."""
    if not isinstance(function, FunctionType):
        return None
    return _constant(function.__code__), function.__defaults__, function.__kwdefaults__


def _constant(value: Any) -> Any:
    """A constant of a function's code, or that code, without the lines that it stands in."""
    if isinstance(value, CodeType):
        names = value.co_names, value.co_varnames
        return value.co_code, value.co_exceptiontable, names, _constant(value.co_consts)
    if isinstance(value, frozenset):  # in no order
        return "frozenset", sorted(map(repr, value))
    return tuple(map(_constant, value)) if isinstance(value, tuple) else value


def _layers_of(module: nn.Module) -> list[tuple[Any, ...]]:
    """All there is of each layer but what its ``state_dict`` holds.

    Name, class, mode, own attributes, which parameters are learned, other buffers, and hooks.
    """
    of_any = vars(nn.Module()).keys()
    return [
        (
            name,
            qualified_name(layer),
            layer.training,
            {
                key: _known_by(value) if isinstance(value, _FUNCTIONS) else value
                for key, value in vars(layer).items()
                if key not in of_any
            },
            [key for key, own in layer.named_parameters(recurse=False) if own.requires_grad],
            as_arrays({key: layer._buffers[key] for key in _unkept(layer)}),
            [_known_by([*getattr(layer, hooks).values()]) for hooks in _HOOKS],
        )
        for name, layer in module.named_modules()
    ]


def _ties_of(module: nn.Module) -> list[str]:
    """Of each parameter the first name that it has."""
    first: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return [first.setdefault(id(parameter), name) for name, parameter in named]


def _unkept(layer: nn.Module) -> list[str]:
    """Names of the buffers that are not in its ``state_dict``."""
    names = sorted(layer._non_persistent_buffers_set)
    return [name for name in names if layer._buffers.get(name) is not None]


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
