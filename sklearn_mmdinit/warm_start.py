"""What ``warm_start_from`` may be: None, an initializer, a Theta0 or the path of its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import validate_data
from torch import nn

from ._base.mlp import MLP
from ._base.module_factory import ModuleFactory, factory_of_initializer
from ._base.validation import add_error_context, shortened
from .initializer import MMDInitializer
from .networks.builder import fresh_theta0, module_to_train, needs_integers
from .networks.info import is_plain_linear
from .theta0 import Architecture, Theta0, set_theta0_, theta0_in

_VALID = (
    "None, an MMDInitializer, a Theta0 (fitted initializers and classifiers have one as theta0_) "
    "or the path of a .safetensors file"
)

Source = MMDInitializer | Theta0 | None


def is_fitted(source: Any) -> bool:
    """Whether this is an initializer that has learned its theta0."""
    return isinstance(source, MMDInitializer) and theta0_in(source) is not None


def source_of(warm_start_from: Any) -> Source:
    """The initializer or the Theta0 to start from; a file is read."""
    if warm_start_from is None or isinstance(warm_start_from, MMDInitializer | Theta0):
        return warm_start_from
    if isinstance(warm_start_from, os.PathLike) or str(warm_start_from).endswith(".safetensors"):
        return Theta0.load(warm_start_from)
    raise TypeError(
        f"warm_start_from must be {_VALID}; got {shortened(repr(warm_start_from))}. After "
        "mmd_init_(net, X) write NetClassifier(net, fine_tuning='head-first')"
    )


def factory_of(source: Source, n_features: int, n_classes: int, seed: int) -> ModuleFactory | None:
    """The factory of a source's module; None for None, or for a Theta0 that is not of an MLP."""
    theta0 = theta0_in(source)
    if theta0 is not None and theta0.architecture.is_perceptron:
        return ModuleFactory(MLP, theta0.architecture.keywords, seed)
    if not isinstance(source, MMDInitializer):
        return None
    return factory_of_initializer(vars(source), n_features, seed, n_classes)


def mlp_factory(
    source: Source, chosen: Mapping[str, Any], n_features: int, n_classes: int, seed: int
) -> ModuleFactory:
    """The factory of an MLP: the source's, with the `chosen` keywords."""
    sizes = {"n_features": n_features, "n_classes": n_classes}
    if source is None:
        # The widths are the paper's.
        return ModuleFactory(MLP, {"hidden_layer_sizes": (392, 392, 392), **chosen, **sizes}, seed)
    factory = factory_of(source, n_features, n_classes, seed)
    if factory is None or factory.module is not MLP:
        raise ValueError(
            f"warm_start_from={shortened(repr(source))} is not for a multi-layer perceptron, which "
            "MLPClassifier needs; use NetClassifier"
        )
    return ModuleFactory(MLP, {**factory.keywords, **chosen, **sizes}, seed)


@dataclass(frozen=True)
class Start:
    """Where training starts: a module of the factory, at theta0."""

    factory: ModuleFactory
    architecture: Architecture  # of the factory's module, for the examples to train on
    source: Source
    theta0: Theta0  # the source's; the weights of a new module if the source has none
    head: str  # the plain linear layer that returns the logits; empty if there is none
    takes_integers: bool  # whether the module has an embedding layer

    @property
    def must_learn(self) -> bool:
        """Whether the source is an initializer that is not fitted yet."""
        return self.source is not None and theta0_in(self.source) is None

    def build(self) -> nn.Module:
        """A new module at theta0, to be trained."""
        module = self.factory.build().float()
        set_theta0_(module, self.theta0)
        return module

    def learned(self, X: Any, y: np.ndarray, seed: int) -> Start:
        """The start after a clone of the initializer has learned from X; y gives the classes."""
        initializer = clone(self.source)
        if initializer.random_state is None:
            initializer.random_state = seed
        initializer.fit(X, y)
        return replace(self, source=initializer, theta0=initializer.theta0_)


def start_from(source: Source, factory: ModuleFactory, X: Any, n_classes: int) -> Start:
    """The start of the factory's module from a source.

    Raises an error if the source, the module and examples X do not fit together.
    """
    learned = theta0_in(source)
    given = (
        getattr(source, "n_classes", "auto") if learned is None else learned.architecture.n_classes
    )
    if given not in ("auto", 0, n_classes):  # 0: unknown to a Theta0 made by hand
        raise ValueError(
            f"warm_start_from is for {given} classes, but y has {n_classes} (-1 is counted): "
            f"pass {given} classes, or pre-train with MMDInitializer(n_classes={n_classes})"
        )
    module, fresh = module_to_train(factory, X)
    architecture = fresh.architecture
    if (n_logits := architecture.n_classes) != n_classes:
        name = architecture.module
        raise ValueError(f"y has {n_classes} classes, but {name} returns {n_logits} logits")
    if learned is not None:
        set_theta0_(module, learned)
    elif source is not None:
        _check_will_fit(source, module, X.shape[1:], n_classes)
    head = architecture.last_layer
    if not is_plain_linear(module, head):
        head = ""
    return Start(factory, architecture, source, learned or fresh, head, needs_integers(module))


def check_columns(source: Source, X: Any) -> None:
    """Raise a ValueError if a fitted initializer knows other columns than the caller's X has."""
    if is_fitted(source):
        flat = np.ndim(X) <= 2
        validate_data(source, X, reset=False, skip_check_array=True, ensure_2d=flat)


def _check_will_fit(
    initializer: Any, module: nn.Module, input_shape: tuple[int, ...], n_classes: int
) -> None:
    """Raise an error before an initializer learns weights that will not fit a module."""
    factory = factory_of(initializer, int(np.prod(input_shape)), n_classes, 0)
    assert factory is not None
    with add_error_context("the initializer in warm_start_from is of another module"):
        set_theta0_(module, fresh_theta0(factory, factory.build(), input_shape))
