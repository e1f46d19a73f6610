"""Makes modules: copies of an instance, or calls of a class with its arguments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Self, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from .environment import own_generators
from .mlp import MLP, PERCEPTRON_DEFAULTS
from .validation import add_error_context, check_widths, is_auto

# Prefix of the arguments of a module's class, as in skorch.
PREFIX = "module__"

# Parameters of skorch and of scikit-learn's MLPClassifier, and the names that they have here.
FAMILIAR = {
    name: meant
    for meant, names in {
        "X": "dataset",
        "callbacks": "n_iter_no_change tol",
        "hidden_layer_sizes": "hidden_layers",
        "iterator_train__shuffle": "shuffle",
        "learning_rate_init": "lr learning_rate",
        "max_iter": "epochs max_epochs",
        "optimizer": "solver",
        "optimizer__momentum": "momentum",
        "optimizer__weight_decay": "alpha weight_decay",
        "validation_split": "callbacks__best_epoch early_stopping train_split validation_fraction",
        "warm_start_from": "warm_start",
        "y": "classes",
    }.items()
    for name in names.split()
}

# Number of classes if neither parameters nor labels give it: the paper's two.
_N_CLASSES = 2
# Parameters that describe the built-in perceptron; another module has its own.
OF_A_PERCEPTRON = (*PERCEPTRON_DEFAULTS, "init")

T = TypeVar("T")


def uncompiled(module: Any) -> Any:
    """The module that ``torch.compile`` wrapped; any other module itself."""
    return getattr(module, "_orig_mod", module)


def check_module(module: Any, keywords: Mapping[str, Any]) -> None:
    """Raise an error unless the module is an instance, a class with its arguments, or None."""
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", type(module).__name__)
        raise ValueError(
            f"module must be a module of Python code, which can be copied, got the TorchScript of "
            f"{name}; pass the Python module that it was made of"
        )
    if isinstance(uncompiled(module), DataParallel | DistributedDataParallel):
        raise TypeError(
            f"module is a {type(uncompiled(module)).__name__}, and an estimator trains copies of "
            "its module on one device; pass the module that it wraps, or use MMDObjective in a loop"
        )
    if inspect.isclass(module) and issubclass(module, nn.Module):
        return
    if not (module is None or isinstance(module, nn.Module)):
        raise TypeError(f"module must be an nn.Module, an instance or a class, got {module!r}")
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
    # Whether forward casts X to the module's own dtypes, which then must not change.
    casts: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", uncompiled(self.module))

    def snapshot(self) -> ModuleFactory:
        """A copy, which later changes of the instance or of the class's arguments do not affect."""
        if isinstance(self.module, nn.Module):
            return replace(self, module=_copied(self.module, self.module))
        return replace(self, keywords=_copied(dict(self.keywords), self.module))

    def build(self) -> nn.Module:
        """A new module; all from one factory have the same weights."""
        if isinstance(self.module, nn.Module):
            built = _copied(self.module, self.module)
        else:
            # All GPUs are seeded, because a class may make its weights on any device.
            call = f"{self.module.__name__} called with {dict(self.keywords)}"
            with own_generators(self.seed), add_error_context(call):
                built = self.module(**_copied(dict(self.keywords), self.module))
        for name, value in (*built.named_parameters(), *built.named_buffers()):
            label = f"{name!r} of the module {type(built).__name__}"
            if is_lazy(value):
                raise ValueError(f"{label} has no shape yet; call the module on a mini-batch first")
            if value.requires_grad and value.numel() == 0:
                raise ValueError(f"{label} is empty, of shape {tuple(value.shape)}")
            if value.is_meta:
                raise ValueError(f"{label} is on the meta device, without numbers; use to_empty()")
        built.zero_grad()
        return built

    def build_to_train(self) -> nn.Module:
        """A new module in single precision, or in its own dtypes if it casts."""
        module = self.build()
        return module if self.casts else module.float()


def _copied(value: T, module: Any) -> T:
    """A copy of a module, or of its class's arguments, which may hold modules too."""
    name = getattr(module, "__name__", type(module).__name__)
    # torch.nn.utils.weight_norm, for example, keeps weights that it computed in a forward pass.
    hint = "pass its class; for weight_norm use that of torch.nn.utils.parametrizations"
    with add_error_context(f"the module {name} cannot be copied; {hint}"):
        return copy.deepcopy(value)


def keywords_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the module's class, among the parameters of an estimator."""
    return {n.removeprefix(PREFIX): v for n, v in parameters.items() if n.startswith(PREFIX)}


def with_sizes(
    module: Any, keywords: Mapping[str, Any], n_features: int, n_classes: int | None
) -> dict[str, Any]:
    """Arguments of a class, with ``n_features`` and ``n_classes`` if it needs them.

    A class gets ``n_features`` if it has this argument without a default. It gets ``n_classes`` if
    it has this argument. If the number of classes is None, the class keeps its default; a class
    without a default gets 2, as in the paper.
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
    module = parameters.get("module")
    if not is_auto(given := parameters.get("n_classes", "auto")):
        n_classes = given
    if module is None:
        chosen = {name: parameters[name] for name in OF_A_PERCEPTRON if name in parameters}
        chosen["hidden_layer_sizes"] = check_widths(chosen["hidden_layer_sizes"])
        sizes = {"n_features": n_features, "n_classes": n_classes or _N_CLASSES}
        return ModuleFactory(MLP, sizes | chosen, seed)
    keywords = with_sizes(module, keywords_of(parameters), n_features, n_classes)
    return ModuleFactory(module, keywords, seed)


class ExtraParamsMixin:
    """For an estimator with parameters beyond its signature, such as ``module__width``."""

    def _is_keyword(self, name: str) -> bool:
        """Whether this name is a parameter beyond the signature."""
        return name.startswith(PREFIX)

    def _unknown_parameter(self, name: str) -> TypeError:
        """The error for an unknown parameter name, with a hint at the right one."""
        names = ["X", "y", *inspect.signature(type(self).__init__).parameters]
        meant = FAMILIAR.get(name) or next(iter(get_close_matches(name, names)), "")
        where = "" if meant in names or self._is_keyword(meant) else " of the classifier"
        hint = f"; here it is {meant!r}{where}" if meant else ""
        return TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}")

    def _set_keywords(self, keywords: dict[str, Any]) -> None:
        """Store the parameters that ``__init__`` got beyond its signature."""
        for name in keywords:
            if not self._is_keyword(name):
                raise self._unknown_parameter(name)
        vars(self).update(keywords)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, with those beyond the signature; `deep` adds those of its parts."""
        in_signature: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        beyond = {name: value for name, value in vars(self).items() if self._is_keyword(name)}
        return beyond | in_signature

    def set_params(self, **params: Any) -> Self:
        """Set parameters, with those beyond the signature."""
        for name in params.keys() & (FAMILIAR.keys() - self.get_params(deep=False).keys()):
            raise self._unknown_parameter(name)
        beyond = {name: value for name, value in params.items() if self._is_keyword(name)}
        super().set_params(**{n: v for n, v in params.items() if n not in beyond})  # type: ignore[misc]
        vars(self).update(beyond)
        return self
