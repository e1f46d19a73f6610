"""Makes modules: copies of an instance, or calls of a class with its arguments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from .environment import own_generators
from .mlp import MLP
from .validation import add_error_context, is_auto

# Prefix of the arguments of a module's class, as in skorch.
PREFIX = "module__"

# Number of classes if neither parameters nor labels give it: the paper's two.
_N_CLASSES = 2
# Parameters that describe the built-in MLP; another module has its own.
OF_A_PERCEPTRON = ("hidden_layer_sizes", "activation", "init")


def uncompiled(module: Any) -> Any:
    """The module that ``torch.compile`` wrapped; any other module itself."""
    return getattr(module, "_orig_mod", module)


def check_module(module: Any, keywords: Mapping[str, Any]) -> None:
    """Raise an error unless the module is an instance, a class with its arguments, or None."""
    if inspect.isclass(module) and issubclass(module, nn.Module):
        return
    wraps = isinstance(uncompiled(module), DataParallel | DistributedDataParallel)
    if wraps or not (module is None or isinstance(module, nn.Module)):
        valid = "an nn.Module (an instance or a subclass), not wrapped for several GPUs"
        raise TypeError(f"module must be {valid}, got {module!r}")
    if keywords:
        given = "None" if module is None else f"an instance of {type(module).__name__}"
        raise ValueError(
            f"{PREFIX}{min(keywords)} is an argument for a class, but module is {given}; pass the "
            "class, or leave the argument out"
        )


@dataclass(frozen=True)
class ModuleFactory:
    """Makes modules: copies of an instance, or calls of a class with weights drawn by a seed."""

    module: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", uncompiled(self.module))

    def snapshot(self) -> ModuleFactory:
        """A copy: later changes of the instance or of the class's arguments do not affect it."""
        name = getattr(self.module, "__name__", type(self.module).__name__)
        # torch.nn.utils.weight_norm, for example, keeps weights that a forward pass computed.
        hint = "pass its class; for weight_norm use that of torch.nn.utils.parametrizations"
        with add_error_context(f"the module {name} cannot be copied; {hint}"):
            return copy.deepcopy(self)

    def build(self) -> nn.Module:
        """A new module; all from one factory have the same weights."""
        copied = self.snapshot()
        module = copied.module
        if not isinstance(module, nn.Module):
            call = f"{module.__name__} called with {dict(copied.keywords)}"
            with own_generators(self.seed), add_error_context(call):
                module = module(**copied.keywords)
        module.zero_grad()
        return module


def keywords_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the module's class, among the parameters of an estimator."""
    return {n.removeprefix(PREFIX): v for n, v in parameters.items() if n.startswith(PREFIX)}


def with_sizes(
    module: Any, keywords: Mapping[str, Any], n_features: int, n_classes: int | None
) -> dict[str, Any]:
    """Arguments of a class, with ``n_features`` and ``n_classes`` if it takes them.

    A class gets ``n_features`` only if this argument has no default. If the number of classes is
    None, the class keeps its default; a class without a default gets 2, as in the paper.
    """
    takes = inspect.signature(module).parameters if inspect.isclass(module) else {}
    needs = {n for n, p in takes.items() if p.default is inspect.Parameter.empty}
    sizes = {"n_features": n_features} if "n_features" in needs else {}
    if "n_classes" in needs or ("n_classes" in takes and n_classes is not None):
        sizes["n_classes"] = n_classes or _N_CLASSES
    return {**sizes, **keywords}


def factory_of_initializer(
    parameters: Mapping[str, Any], n_features: int, seed: int, n_classes: int | None = None
) -> ModuleFactory:
    """The factory of an initializer's network; `n_classes` is that of the labels, if known."""
    module, keywords = parameters.get("module"), keywords_of(parameters)
    if not is_auto(given := parameters.get("n_classes", "auto")):
        n_classes = given
    if module is None:
        module = MLP
        keywords = {name: parameters[name] for name in OF_A_PERCEPTRON if name in parameters}
    return ModuleFactory(module, with_sizes(module, keywords, n_features, n_classes), seed)


class ExtraParamsMixin:
    """For an estimator with parameters beyond its signature, such as ``module__width``."""

    def _is_keyword(self, name: str) -> bool:
        """Whether this name is a parameter beyond the signature."""
        return name.startswith(PREFIX)

    def _set_keywords(self, keywords: dict[str, Any]) -> None:
        """Store the parameters that ``__init__`` got beyond its signature."""
        for name in keywords:
            if not self._is_keyword(name):
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}")
        vars(self).update(keywords)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, including ``module__<name>``; `deep` adds nested ones."""
        in_signature: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        return {n: v for n, v in vars(self).items() if self._is_keyword(n)} | in_signature

    def set_params(self, **params: Any) -> Self:
        """Set parameters, including ``module__<name>``."""
        beyond = {name: params.pop(name) for name in [*params] if self._is_keyword(name)}
        super().set_params(**params)  # type: ignore[misc]
        vars(self).update(beyond)
        return self
