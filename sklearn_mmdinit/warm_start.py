"""Finds the theta0 that a classifier starts from: in ``warm_start_from``, or carried by X."""

from __future__ import annotations

import copy
import math
import os
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from torch import nn

from ._base.mlp import MLP, PERCEPTRON_DEFAULTS
from ._base.module_factory import ModuleFactory, factory_of_initializer
from ._base.validation import add_error_context, joined, shortened, warn_user
from .fine_tuning.head import SkipConnection, can_be_fitted
from .networks.builder import fresh_theta0, module_to_train, takes_integers
from .theta0 import Architecture, Theta0, load_theta0, set_theta0_, theta0_in

_VALID = (
    "None, 'auto', 'pipeline', an initializer such as MMDInitializer() (not its class), a Theta0 "
    "(a fitted classifier has one as theta0_) or the path of a .safetensors file"
)
_LOST_BY = (
    "A step that returns a new array between the initializer and the classifier loses it, and so "
    "do a FeatureUnion or a ColumnTransformer around the initializer, and slicing; pass the "
    "initializer as warm_start_from instead"
)
_NO_INITIALIZER = (
    "No step before this classifier is an initializer with output='passthrough'; write "
    "make_pipeline(StandardScaler(), MMDInitializer(), classifier), or pass an initializer as "
    "warm_start_from"
)
# Attributes that hold the parts of a step.
_PARTS = {Pipeline: "steps", ColumnTransformer: "transformers", FeatureUnion: "transformer_list"}


# An array that carries theta0


class Theta0Array(np.ndarray):
    """An ndarray with an attribute ``theta0``: a Theta0, or None if it was lost.

    scikit-learn passes only arrays down a Pipeline, so the array brings theta0 from the
    initializer to the classifier. An array derived from it (a slice, a sum, a copy) has lost
    theta0 but not its type, so that the classifier can report the loss. It is read-only, because
    theta0 does not fit other values.
    """

    theta0: Theta0 | None
    # Above ndarray's 0, so that np.stack of this and a plain array returns this type.
    __array_priority__ = 1.0

    def __array_finalize__(self, obj: Any) -> None:
        # NumPy calls this for every new array, also for derived ones.
        self.theta0 = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # Like ndarray: X.sum() is a number, not an array without axes.
        scalar = return_scalar or array.ndim == 0  # NumPy 1 does not set return_scalar
        return array[()] if scalar else super().__array_wrap__(array, context)

    # pickle, joblib.dump and joblib.Memory all use these two methods.
    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, args, state = cast("tuple[Any, ...]", super().__reduce__())
        return rebuild, args, (state, self.theta0)

    def __setstate__(self, state: Any) -> None:
        array_state, theta0 = state
        super().__setstate__(array_state)
        self.theta0 = theta0
        self.flags.writeable = theta0 is None

    # ndarray's own versions would drop theta0. Nothing writes to it, so copies share it.
    def __copy__(self) -> Theta0Array:
        return attach_theta0(np.array(self), self.theta0)

    def __deepcopy__(self, memo: dict[int, Any], /) -> Theta0Array:  # type: ignore[override]
        return attach_theta0(np.array(self), self.theta0)


def attach_theta0(X: np.ndarray, theta0: Theta0 | None) -> Theta0Array:
    """A read-only view of X, of the same memory, that carries theta0."""
    view = np.asarray(X).view(Theta0Array)
    view.theta0 = theta0
    view.flags.writeable = False
    return view


def attached_theta0(X: Any) -> Theta0 | None:
    """The theta0 that X carries, or None."""
    return X.theta0 if isinstance(X, Theta0Array) else None


# Initializers


def is_initializer(source: Any) -> bool:
    """Whether an object has the methods and parameters of an initializer, fitted or not."""
    source = _unfrozen(source)
    has_methods = hasattr(source, "get_params") and hasattr(source, "fit")
    if isinstance(source, type) or not has_methods or hasattr(source, "predict_proba"):
        return False
    needed = {*PERCEPTRON_DEFAULTS, "n_classes"}
    return source.get_params(deep=False).keys() >= needed or is_fitted_initializer(source)


def is_fitted_initializer(source: Any) -> bool:
    """Whether an object is an initializer that has learned its theta0."""
    return hasattr(source, "get_params") and theta0_in(source) is not None


def fitted_or_cloned(given: Sequence[Any], cloned: Sequence[Any]) -> list[Any]:
    """The clones; a fitted initializer itself takes the place of its clone, which is unfitted."""
    pairs = zip(given, cloned, strict=True)
    return [one if is_fitted_initializer(one) else its_clone for one, its_clone in pairs]


def _unfrozen(source: Any) -> Any:
    # A FrozenEstimator has the attributes of its estimator, but not the parameters.
    return source.estimator if isinstance(source, FrozenEstimator) else source


def seeded(estimator: Any, seed: int | None) -> Any:
    """A clone, in which the seed replaces a ``random_state`` of None."""
    cloned = clone(estimator)
    if cloned.get_params(deep=False).get("random_state", 0) is None:
        cloned.set_params(random_state=seed)
    return cloned


def with_params(initializer: Any, params: Mapping[str, Any]) -> Any:
    """An initializer with these parameters; the given one does not change.

    If no value differs, the given one is returned. If only ``random_state`` or ``verbose`` differ,
    it is a fitted copy, because an ensemble sets these in its members and theta0 is learned
    already. Else it is an unfitted copy.
    """
    before = initializer.get_params(deep=True)
    changed = {k: v for k, v in params.items() if k not in before or not _same(v, before[k])}
    if not changed:
        return initializer
    keeps_theta0 = all(k == "verbose" or k.split("__")[-1] == "random_state" for k in changed)
    if is_fitted_initializer(initializer) and keeps_theta0:
        copied = copy.copy(initializer)
        for part in {name.partition("__")[0] for name in changed if "__" in name}:
            setattr(copied, part, clone(before[part]))
        return copied.set_params(**changed)
    return clone(initializer).set_params(**changed)


def _same(value: Any, other: Any) -> bool:
    """Whether two values are one object, or equal numbers, texts or tuples of them."""
    if isinstance(value, tuple) and isinstance(other, tuple):
        return len(value) == len(other) and all(map(_same, value, other))
    plain = isinstance(value, Real | str) and isinstance(other, Real | str)
    return value is other or (plain and bool(value == other))


# Where training starts


def find_source(warm_start_from: Any, X: Any) -> Any:
    """The Theta0 or the initializer to start from, or None; X is not converted yet."""
    if warm_start_from is None:
        return None
    if isinstance(warm_start_from, str) and warm_start_from in ("auto", "pipeline"):
        theta0 = attached_theta0(X)
        if theta0 is None:
            was_lost = isinstance(X, Theta0Array) or _follows_initializer()
            if was_lost or warm_start_from == "pipeline":
                reason = _LOST_BY if was_lost else _NO_INITIALIZER
                raise ValueError(f"X ({type(X).__name__}) carries no theta0. {reason}")
        return theta0
    if is_initializer(warm_start_from):
        if isinstance(warm_start_from, FrozenEstimator) and theta0_in(warm_start_from) is None:
            raise NotFittedError("warm_start_from is frozen and not fitted; call its fit first")
        return warm_start_from
    if isinstance(warm_start_from, Theta0):
        return warm_start_from
    if isinstance(warm_start_from, os.PathLike) or str(warm_start_from).endswith(".safetensors"):
        return load_theta0(warm_start_from)
    error = ValueError if isinstance(warm_start_from, str) else TypeError
    hint = ""
    if isinstance(warm_start_from, nn.Module | list):
        hint = ". After mmd_init_(net, X) write NetClassifier(net), which starts from its weights"
    raise error(f"warm_start_from must be {_VALID}; got {shortened(repr(warm_start_from))}{hint}")


def _follows_initializer() -> bool:
    """Whether Pipelines are being fitted, and an earlier step of one passes theta0 on."""
    # A step of a Pipeline knows nothing of the other steps. Only the call stack shows them.
    seen: list[Pipeline] = []
    for frame, _ in traceback.walk_stack(None):
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline) and not any(pipeline is other for other in seen):
            seen.append(pipeline)
            # `step_idx` is scikit-learn's number of the step that is being fitted. While the last
            # step is fitted, the frame has no `step_idx`.
            earlier = pipeline.steps[: frame.f_locals.get("step_idx", -1)]
            if any(_passes_theta0_on(step) for _, step in earlier):
                return True
    return False


def _passes_theta0_on(step: Any) -> bool:
    """Whether a step is an initializer that passes X on, or has one among its own steps."""
    step = _unfrozen(step)
    if is_initializer(step):
        return getattr(step, "output", "") == "passthrough"
    lists = (getattr(step, name) for kind, name in _PARTS.items() if isinstance(step, kind))
    return any(_passes_theta0_on(part) for parts in lists for _, part, *_ in parts)


def factory_of(source: Any, n_features: int, n_classes: int, seed: int = 0) -> ModuleFactory | None:
    """The factory for a source; None for None, or for a Theta0 of another module than MLP."""
    theta0 = theta0_in(source)
    # A theta0 for another number of classes gets a fresh last layer in `start_from`.
    if theta0 is not None and theta0.architecture.is_perceptron:
        keywords = theta0.architecture.keywords | {"n_classes": n_classes}
        return ModuleFactory(MLP, keywords, seed)
    if source is None or isinstance(source, Theta0):
        return None
    parameters = _unfrozen(source).get_params(deep=False)
    if theta0 is not None:
        parameters |= {"n_classes": "auto"}
    return factory_of_initializer(parameters, n_features, seed, n_classes)


def perceptron_keywords(source: Any, n_features: int, n_classes: int) -> dict[str, Any]:
    """The structure of a source's perceptron; an error if its module is another one."""
    factory = factory_of(source, n_features, n_classes)
    if factory is None or factory.module is not MLP:
        raise ValueError(
            f"{name_of(source)} is not for a multi-layer perceptron, which MLPClassifier needs; "
            "use NetClassifier"
        )
    return {name: value for name, value in factory.keywords.items() if name != "init"}


def name_of(source: Any) -> str:
    """The name of a source in error messages."""
    if theta0_in(source) is not None:
        return "the theta0 to start from"
    return f"the initializer {type(source).__name__}"


@dataclass(frozen=True)
class Start:
    """Where training starts: a module of the factory, at theta0."""

    factory: ModuleFactory
    architecture: Architecture  # of the factory's module, for the rows to train on
    source: Any  # a Theta0 or an initializer, fitted or not; None for fresh weights
    theta0: Theta0  # the source's; the weights of a new module if the source has none
    head: str  # the linear layer that returns the logits, if its weights can be set
    takes_integers: bool  # whether the module has an embedding layer

    @property
    def must_learn(self) -> bool:
        """Whether the source is an initializer that is not fitted yet."""
        return self.source is not None and theta0_in(self.source) is None

    def build(self, skip_connection: bool) -> nn.Module:
        """A new module at theta0, to be trained."""
        module = self.factory.build_to_train()
        set_theta0_(module, self.theta0)
        if not skip_connection:
            return module
        return SkipConnection(module, self.architecture.n_features, self.architecture.n_classes)

    def learn(self, X: Any, X_unlabelled: Sequence[Any], seed: int | None) -> Start:
        """The start after a clone of the initializer has learned from all rows."""
        initializer = seeded(self.source, seed)
        # Only the number of classes in y affects an initializer.
        y = range(self.architecture.n_classes)
        rows = joined([X, *X_unlabelled]) if X_unlabelled else X  # a memory map is not copied
        context = f"{name_of(initializer)} learns from all rows, X and X_unlabelled"
        with add_error_context(context):
            initializer.fit(rows, y)
        return replace(self, source=initializer, theta0=initializer.theta0_)


def start_from(
    source: Any,
    factory: ModuleFactory,
    X: Any,
    n_classes: int,
    feature_names: np.ndarray | None = None,
) -> Start:
    """The start of the factory's module from a source.

    Raises an error if the source, the module and rows X do not fit together. A theta0 for another
    number of classes gets a fresh last layer, with a warning.
    """
    factory, module, fresh = module_to_train(factory, X)
    architecture = fresh.architecture
    if (n_logits := architecture.n_classes) != n_classes:
        name = architecture.module
        raise ValueError(f"y has {n_classes} classes, but {name} returns {n_logits} logits")
    theta0 = fresh
    if (learned := theta0_in(source)) is not None:
        theta0 = _with_last_layer_of(fresh, learned)
        set_theta0_(module, theta0)
        check_feature_names(source, feature_names)
    elif source is not None:
        _check_will_fit(source, module, architecture)
    head = architecture.last_layer
    if head and not can_be_fitted(module.get_submodule(head)):
        head = ""
    return Start(factory, architecture, source, theta0, head, takes_integers(module))


def check_feature_names(initializer: Any, feature_names: np.ndarray | None) -> None:
    """Raise a ValueError if an initializer was fitted to columns of other names."""
    # A Theta0 and rows without names cannot be compared.
    learned_names = getattr(initializer, "feature_names_in_", None)
    if learned_names is None or feature_names is None:
        return
    for column, (name, learned) in enumerate(zip(feature_names, learned_names, strict=False)):
        if name != learned:
            fitted = f"the initializer was fitted with {learned!r} as column {column}"
            raise ValueError(f"{fitted}, and X has {name!r} there")
    if (n := len(feature_names)) != (n_learned := len(learned_names)):
        raise ValueError(
            f"the initializer was fitted with {n_learned} columns, and X has {n}: pass the columns "
            "that its feature_names_in_ lists"
        )


def _check_will_fit(initializer: Any, module: nn.Module, architecture: Architecture) -> None:
    """Raise an error if a module cannot take the weights that an initializer will learn."""
    shape, n_classes = architecture.input_shape, architecture.n_classes
    factory = factory_of(initializer, math.prod(shape), n_classes)
    assert factory is not None
    try:
        set_theta0_(module, fresh_theta0(factory, factory.build(), shape))
    except ValueError as error:
        problem = f"{name_of(initializer)} would learn weights that do not fit this module"
        raise ValueError(f"{problem}: {error}") from error


def _with_last_layer_of(fresh: Theta0, theta0: Theta0) -> Theta0:
    """theta0; if it is for another number of classes, its last layer is that of `fresh`."""
    learned, needed = theta0.architecture, fresh.architecture
    last = learned.last_layer
    # `set_theta0_` reports what else does not fit.
    if learned.n_classes in (0, needed.n_classes) or not last or learned.module != needed.module:
        return theta0
    # A parametrized layer has its weight in parts.
    layer = {n: a for n, a in fresh.arrays.items() if n.startswith(f"{last}.")}
    if theta0.gain:  # the last layer is divided by the product of the gains
        layer[f"{last}.weight"] = layer[f"{last}.weight"] / math.prod(theta0.gain)
    architecture = replace(
        needed, input_shape=learned.input_shape, last_layer=last, chain=learned.chain
    )
    try:
        fitted = replace(theta0, architecture=architecture, arrays={**theta0.arrays, **layer})
    except ValueError:
        return theta0
    hint = f"learn theta0 with n_classes={needed.n_classes}, or name all classes with fit(classes=)"
    if needed.n_classes > learned.n_classes:
        hint = f"if a value in y means no label, pass it as unlabelled_label; else {hint}"
    warn_user(
        f"theta0 is for {learned.n_classes} classes and y has {needed.n_classes}: training starts "
        f"with a fresh last layer, {last!r}, which needs more labels; {hint}"
    )
    return fitted
