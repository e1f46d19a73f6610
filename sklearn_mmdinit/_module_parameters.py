"""What ``module`` may be, and what other parameters mean for it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ._coherence import coherence_of
from ._modules import (
    ModuleBlueprint,
    ModuleSource,
    blueprint_of,
    check_source,
    keywords_of,
    keywords_of_initializer,
    samplers_of,
)
from ._network import Theta0
from ._pretraining import Blueprint, check_factors, is_auto
from ._sampling import layers_by_gram

__all__ = ["check_module", "chosen_samplers", "input_shape", "module_blueprint"]

# Parameters that describe a perceptron.
_OF_A_PERCEPTRON = (
    "hidden_layer_sizes",
    "activation",
    "batch_norm",
    "init",
    "jacobian_at",
    "precision",
)
_DEFAULT_N_CLASSES = 2


def check_module(estimator: Any) -> None:
    """Raise unless the parameters say the same kind of network.

    Raises
    ------
    TypeError
        If ``module`` is no module.
    ValueError
        If a parameter is for a perceptron and there is a module, or the other way round.
    """
    check_source(estimator.module, keywords_of(vars(estimator)))
    if estimator.module is None:
        if estimator.hidden_layer is not None:
            raise ValueError(
                f"hidden_layer={estimator.hidden_layer!r} names a layer of a module, got "
                "module=None"
            )
        return
    defaults = inspect.signature(type(estimator).__init__).parameters
    for name in _OF_A_PERCEPTRON:
        value, default = getattr(estimator, name), defaults[name].default
        if not np.array_equal(value, default):
            raise ValueError(
                f"{name}={value!r} describes a perceptron, but there is a module, which has layers "
                "and weights of its own; leave it out"
            )


def module_blueprint(estimator: Any, X: np.ndarray, seed: int) -> ModuleBlueprint:
    """How networks of an estimator's module are made, for examples like these.

    Raises
    ------
    ValueError
        If the module does not fit the examples or a parameter.
    """
    # Weights must not share numbers with the perturbations, nor with rows and walks.
    sequence = np.random.SeedSequence(seed, spawn_key=(2,))
    keywords = keywords_of_initializer(vars(estimator))
    source = ModuleSource(estimator.module, keywords, int(sequence.generate_state(1)[0])).kept()
    blueprint = blueprint_of(source, X, estimator.sampler, estimator.hidden_layer)
    _check_classes(estimator, blueprint)
    _check_gain(estimator, blueprint)
    if coherence_of(estimator.coherence) is not None or estimator.output == "hidden":
        blueprint.hidden(blueprint.fresh(), X[:2], "cpu")  # says it where there are none
    return blueprint


def input_shape(blueprint: Blueprint) -> tuple[int, ...] | None:
    """Shape of the examples that a module was fitted on; None for a perceptron."""
    return blueprint.architecture.input_shape if isinstance(blueprint, ModuleBlueprint) else None


def chosen_samplers(
    blueprint: Blueprint, theta0: Theta0, sampler: str, n_rows: int
) -> dict[str, str]:
    """How each layer is drawn for mini-batches of so many rows, by its name."""
    if isinstance(blueprint, ModuleBlueprint):
        return samplers_of(blueprint.network(theta0, "cpu"), sampler, n_rows)
    architecture = blueprint.architecture
    gram = layers_by_gram(architecture.widths, n_rows, sampler)
    names = zip(architecture.scaled_layers, gram, strict=True)
    return {name: "gram" if by_gram else "direct" for name, by_gram in names}


def _check_classes(estimator: Any, blueprint: ModuleBlueprint) -> None:
    architecture = blueprint.architecture
    found, given = architecture.n_classes, estimator.n_classes
    if given not in (found, _DEFAULT_N_CLASSES):
        raise ValueError(
            f"n_classes={given}, but the module {architecture.module} returns {found} logits"
        )
    if estimator.reference == "closed_form" and found != 2:
        raise ValueError(
            "reference='closed_form' is known for two classes only, and the module "
            f"{architecture.module} returns {found} logits; use reference='sampled'"
        )


def _check_gain(estimator: Any, blueprint: ModuleBlueprint) -> None:
    if is_auto(estimator.gain):
        return
    chain = blueprint.architecture.chain
    n_hidden = len(chain) - 1 if chain else np.size(estimator.gain)
    if check_factors(estimator.gain, n_hidden) and not chain:
        raise ValueError(
            f"gain={estimator.gain!r} would change the function of the module "
            f"{blueprint.architecture.module}; it does not where linear layers and convolutions "
            "follow each other with nothing between them but ReLU, pooling and the like"
        )
