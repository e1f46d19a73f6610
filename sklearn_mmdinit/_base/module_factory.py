"""Where fresh copies of a module come from: an instance, or a class and what it is called with."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Self, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .environment import seeded_generators
from .mlp import MLP
from .validation import add_error_context, check_widths, is_auto

# As skorch has it.
PREFIX = "module__"

# Names that skorch, scikit-learn's MLPClassifier and habit have, and what says it here.
FAMILIAR = {
    "alpha": "optimizer__weight_decay",
    "callbacks__best_epoch": "validation_split",
    "classes": "y",
    "dataset": "X",
    "early_stopping": "validation_split",
    "epochs": "max_iter",
    "learning_rate": "learning_rate_init",
    "lr": "learning_rate_init",
    "max_epochs": "max_iter",
    "momentum": "optimizer__momentum",
    "n_iter_no_change": "callbacks",
    "shuffle": "iterator_train__shuffle",
    "solver": "optimizer",
    "tol": "callbacks",
    "train_split": "validation_split",
    "validation_fraction": "validation_split",
    "warm_start": "warm_start_from",
    "weight_decay": "optimizer__weight_decay",
}

# Of an initializer that nobody tells how many: the paper's.
_N_CLASSES = 2
# Parameters that describe the built-in perceptron; a module has layers and weights of its own.
OF_A_PERCEPTRON = ("hidden_layer_sizes", "activation", "batch_norm", "init")

T = TypeVar("T")


def uncompiled(module: Any) -> Any:
    """What ``torch.compile`` has wrapped, under other names; any other module itself."""
    return getattr(module, "_orig_mod", module)


def check_source(module: Any, keywords: Mapping[str, Any]) -> None:
    """Raise unless this is an instance, a class and what it is called with, or None."""
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", type(module).__name__)
        raise ValueError(f"module must be written in Python, got the TorchScript of {name}")
    if inspect.isclass(module) and issubclass(module, nn.Module):
        return
    if not (module is None or isinstance(module, nn.Module)):
        raise TypeError(f"module must be an nn.Module, an instance or a class, got {module!r}")
    if keywords:
        found = "None" if module is None else f"an instance of {type(module).__name__}"
        raise ValueError(f"{PREFIX}{min(keywords)} is for a class in module, got {found}")


@dataclass(frozen=True)
class ModuleFactory:
    """A module to copy, which is never changed, or a class to call, its weights drawn by a seed."""

    module: Any
    keywords: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", uncompiled(self.module))

    def kept(self) -> ModuleFactory:
        """One that later changes of the instance, or of what the class is called with, leave."""
        if isinstance(self.module, nn.Module):
            return replace(self, module=_copied(self.module, self.module))
        return replace(self, keywords=_copied(dict(self.keywords), self.module))

    def build(self) -> nn.Module:
        """A module like all others from here, with the weights of the first one."""
        if isinstance(self.module, nn.Module):
            built = _copied(self.module, self.module)
        else:
            # A class may make its weights where it likes.
            used = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            made = f"{self.module.__name__} called with {dict(self.keywords)}"
            with seeded_generators(self.seed, used), add_error_context(made):
                built = self.module(**_copied(dict(self.keywords), self.module))
        for name, value in (*built.named_parameters(), *built.named_buffers()):
            named = f"{name!r} of the module {type(built).__name__}"
            if is_lazy(value):
                raise ValueError(f"{named} has no shape yet; call the module on a mini-batch first")
            if value.requires_grad and value.numel() == 0:
                raise ValueError(f"{named} has no numbers, of shape {tuple(value.shape)}")
            if value.is_meta:
                raise ValueError(f"{named} is on the meta device, without numbers; use to_empty()")
        built.zero_grad()
        return built


def _copied(value: T, module: Any) -> T:
    """A copy of a module, or of what its class is called with, which may hold modules too."""
    name = getattr(module, "__name__", type(module).__name__)
    # Such as the weights that torch.nn.utils.weight_norm has computed in a pass.
    hint = "pass its class, or use norms of torch.nn.utils.parametrizations"
    with add_error_context(f"the module {name} cannot be copied; {hint}"):
        copied = copy.deepcopy(value)
    return copied


def keywords_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the class is called with, of all parameters of an estimator."""
    return {n.removeprefix(PREFIX): v for n, v in parameters.items() if n.startswith(PREFIX)}


def with_n_classes(module: Any, keywords: Mapping[str, Any], n_classes: int) -> dict[str, Any]:
    """The number of classes among what a class is called with, where it takes it and has none."""
    takes = inspect.isclass(module) and "n_classes" in inspect.signature(module).parameters
    return {"n_classes": n_classes, **keywords} if takes else dict(keywords)


def factory_of_initializer(
    parameters: Mapping[str, Any], n_features: int, seed: int, n_classes: int | None = None
) -> ModuleFactory:
    """Where the network of an initializer comes from; `n_classes` of the labels, where known."""
    module, asked = parameters.get("module"), parameters.get("n_classes", "auto")
    found = n_classes if is_auto(asked) else asked
    if module is None:
        own = {name: parameters[name] for name in OF_A_PERCEPTRON if name in parameters}
        own["hidden_layer_sizes"] = check_widths(own["hidden_layer_sizes"])
        rows = {"n_features": n_features, "n_classes": found or _N_CLASSES}
        return ModuleFactory(MLP, rows | own, seed)
    own = keywords_of(parameters)
    if found is None:
        # A default of the class's own counts where nobody tells the number.
        takes = inspect.signature(module).parameters if inspect.isclass(module) else {}
        if "n_classes" in takes and takes["n_classes"].default is not inspect.Parameter.empty:
            return ModuleFactory(module, own, seed)
    return ModuleFactory(module, with_n_classes(module, own, found or _N_CLASSES), seed)


class ExtraParamsMixin:
    """For an estimator that takes parameters beyond its signature, such as ``module__width``."""

    def _is_keyword(self, name: str) -> bool:
        """Whether a parameter that the signature does not have is one all the same."""
        return name.startswith(PREFIX)

    def _refusal(self, name: str) -> TypeError:
        """The error for a name that is no parameter."""
        own = inspect.signature(type(self).__init__).parameters
        ours = FAMILIAR.get(name) or next(iter(get_close_matches(name, own)), "")
        of = "" if ours in ("X", "y", *own) or self._is_keyword(ours) else " of the classifier"
        hint = f"; here it is {ours!r}{of}" if ours else ""
        return TypeError(f"{type(self).__name__} has no parameter {name!r}{hint}")

    def _set_keywords(self, keywords: dict[str, Any]) -> None:
        """Keep what ``__init__`` was given beyond its signature."""
        for name in keywords:
            if not self._is_keyword(name):
                raise self._refusal(name)
        vars(self).update(keywords)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters, those beyond the signature among them.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add those of its parts.

        Returns
        -------
        params : dict
            Values by name.
        """
        own: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        kept = {name: value for name, value in vars(self).items() if self._is_keyword(name)}
        return kept | own

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those beyond the signature among them."""
        for name in params.keys() & FAMILIAR.keys():
            raise self._refusal(name)
        kept = {name: value for name, value in params.items() if self._is_keyword(name)}
        super().set_params(**{n: v for n, v in params.items() if n not in kept})  # type: ignore[misc]
        vars(self).update(kept)
        return self
