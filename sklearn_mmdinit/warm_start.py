"""Where training starts: what ``warm_start_from`` may be."""

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
from scipy.sparse import issparse, vstack
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from torch import nn

from ._base.mlp import MLP
from ._base.module_factory import ModuleFactory, factory_of_initializer
from ._base.theta0_array import theta0_is_lost, theta0_of
from ._base.validation import inside_another, warn_user
from .networks.info import describe
from .theta0 import Theta0, arrays_of, load_theta0, start_, theta0_in

_VALID = "None, 'auto', 'pipeline', an initializer, a Theta0 or the path of a .safetensors file"
_LOSING = (
    "Any step between the initializer and the classifier loses it, and so do a FeatureUnion or a "
    "ColumnTransformer around it, set_output(transform='pandas') and slicing; it can be passed as "
    "warm_start_from"
)
_ARCHITECTURE_PARAMETERS = {"hidden_layer_sizes", "n_classes", "activation", "batch_norm"}


def is_initializer(source: Any) -> bool:
    """Whether an object is an initializer, fitted or not: by what it can do, not by its class."""
    source = _unfrozen(source)
    if isinstance(source, type) or not (hasattr(source, "get_params") and hasattr(source, "fit")):
        return False
    known = source.get_params(deep=False).keys() >= _ARCHITECTURE_PARAMETERS
    return known or is_fitted_initializer(source)


def is_fitted_initializer(source: Any) -> bool:
    """Whether an object is an initializer that has learned its theta0."""
    return hasattr(source, "get_params") and theta0_in(source) is not None


def _unfrozen(source: Any) -> Any:
    # Whose attributes a FrozenEstimator has, but not the parameters.
    return source.estimator if isinstance(source, FrozenEstimator) else source


@dataclass(frozen=True)
class Start:
    """Where training starts: at a theta0, at what an initializer will learn, or nowhere yet."""

    theta0: Theta0 | None = None
    initializer: Any = None
    n_classes: int = 0  # of the labels, where there is a start

    @property
    def is_to_be_learned(self) -> bool:
        """Whether the initializer has to learn first."""
        return self.theta0 is None and self.initializer is not None

    @property
    def name(self) -> str:
        """What errors call it."""
        kind = type(self.initializer).__name__
        return f"the initializer {kind}" if self.is_to_be_learned else "the theta0 to start from"

    def source(self, n_features: int, seed: int = 0) -> ModuleFactory | None:
        """Where modules that can start here come from; None where arrays alone do not say it."""
        if self.theta0 is not None and self.theta0.architecture.is_perceptron:
            # A last layer can be made for any number, here and below.
            own = {"n_classes": self.n_classes} if self.n_classes else {}
            return ModuleFactory(MLP, self.theta0.architecture.keywords | own, seed)
        if self.initializer is None:
            return None
        parameters = _unfrozen(self.initializer).get_params(deep=False)
        if self.theta0 is not None:
            parameters |= {"n_classes": "auto"}
        return factory_of_initializer(parameters, n_features, seed, self.n_classes)

    def fitted_to(self, fresh: Theta0) -> Start:
        """One for as many classes as fresh weights of the module have: with their last layer."""
        theirs, own = self.theta0, fresh.architecture
        if theirs is None or theirs.architecture.n_classes in (0, own.n_classes):
            return self
        before, last = theirs.architecture, theirs.architecture.last_layer
        if not last or before.module != own.module:
            return self  # what does not fit is told where it is loaded
        layer = {n: a for n, a in fresh.arrays.items() if n.rpartition(".")[0] == last}
        # The last layer's weights are what takes the gain out again.
        layer[f"{last}.weight"] = layer[f"{last}.weight"] / math.prod(theirs.gain)
        architecture = replace(own, last_layer=last, chain=before.chain)
        try:
            fitted = Theta0(architecture, {**theirs.arrays, **layer}, theirs.gain)
        except ValueError:
            return self
        said = (
            f"theta0 is for {before.n_classes} classes and y has {own.n_classes}: training starts "
            f"with a fresh last layer, {last!r}, which needs more labels; learn theta0 with "
            f"n_classes={own.n_classes}, or say with fit(classes=) which classes there are"
        )
        warn_user(said)
        return replace(self, theta0=fitted)

    def check(self, module: nn.Module, X: Any, feature_names: np.ndarray | None) -> None:
        """Raise a ValueError where a module, in place started here, cannot be trained on X."""
        if self.is_to_be_learned:
            source = cast("ModuleFactory", self.source(math.prod(X.shape[1:])))
            theirs = source.build()
            architecture = describe(source, theirs, X.shape[1:])
            try:
                start_(module, Theta0(architecture, arrays_of(theirs)))
            except ValueError as error:
                name = f"{self.name} would learn what this module cannot start at"
                raise ValueError(f"{name}: {error}") from error
        elif self.theta0 is not None:
            start_(module, self.theta0)
            learned = getattr(self.initializer, "feature_names_in_", None)
            if learned is None or feature_names is None:
                return
            for column, (own, known) in enumerate(zip(feature_names, learned, strict=True)):
                if own != known:
                    was = f"the initializer was fitted with {known!r} as column {column}"
                    raise ValueError(f"{was}, and X has {own!r} there")

    def learned(self, X: Any, X_unlabelled: Sequence[Any], seed: int | None) -> Start:
        """The start once a clone of its initializer has learned from all rows."""
        fresh = seeded(self.initializer, seed)
        labels = np.arange(self.n_classes)  # of which only the number counts
        rows = _together(X, X_unlabelled, fresh)
        with inside_another():
            fresh.fit(rows, labels)
        return replace(self, theta0=fresh.theta0_, initializer=fresh)


def seeded(estimator: Any, seed: int | None) -> Any:
    """A clone whose ``random_state`` is the seed if it has one that is None."""
    cloned = clone(estimator)
    if cloned.get_params(deep=False).get("random_state", 0) is None:
        cloned.set_params(random_state=seed)
    return cloned


def _together(X: Any, X_unlabelled: Sequence[Any], initializer: Any) -> Any:
    """All rows, for an initializer that is about to be fitted."""
    rows = [X, *X_unlabelled]
    any_sparse = any(map(issparse, rows))
    if any_sparse and not get_tags(initializer).input_tags.sparse:
        # Dense copies are a matter of memory, which the caller knows and we do not.
        found = f"X or X_unlabelled is sparse, and {type(initializer).__name__} learns from dense"
        raise ValueError(f"{found} rows only: pass it fitted, on X[:10000].toarray() for instance")
    if len(rows) == 1:
        return X
    return vstack(rows, format="csr") if any_sparse else np.concatenate(rows)


def resolve(source: Any, X: Any, n_classes: int) -> Start:
    """Where training starts by a value of ``warm_start_from``; X as given, perhaps with a tag."""
    if source is None:
        return Start()
    if isinstance(source, str) and source in ("auto", "pipeline"):
        return Start(_from_tag(X, demanded=source == "pipeline"), None, n_classes)
    if hasattr(source, "predict_proba") and not isinstance(source, type):
        name = type(source).__name__
        hint = f"the start of a {name} is its theta0_, and partial_fit goes on with its training"
        raise TypeError(f"warm_start_from must be {_VALID}; got a classifier: {hint}")
    if is_initializer(source):
        theta0 = getattr(source, "theta0_", None)
        if theta0 is None and isinstance(source, FrozenEstimator):
            raise NotFittedError("warm_start_from is frozen and not fitted; call its fit first")
        return Start(theta0, source, n_classes)
    if isinstance(source, str) and not source.endswith(".safetensors"):
        raise ValueError(f"warm_start_from must be {_VALID}; got {source!r}")
    if isinstance(source, str | os.PathLike):
        source = load_theta0(source)
    if not isinstance(source, Theta0):
        hint = "; pass an instance, not the class" if isinstance(source, type) else ""
        raise TypeError(f"warm_start_from must be {_VALID}; got {source!r}{hint}")
    return Start(source, None, n_classes)


def _from_tag(X: Any, demanded: bool) -> Theta0 | None:
    """The theta0 that X carries; an error where it was lost, or is missing and demanded."""
    if theta0_is_lost(X):
        raise ValueError(f"X has lost the theta0 that an initializer gave it. {_LOSING}")
    theta0 = theta0_of(X)
    if theta0 is None and (demanded or _is_below_initializer()):
        raise ValueError(f"X ({type(X).__name__}) carries no theta0. {_LOSING}")
    return theta0


def _is_below_initializer() -> bool:
    """Whether a Pipeline is being fitted, an earlier step of which hands theta0 on."""
    # scikit-learn tells a step nothing of the others, and hands it an array that shows nothing of
    # where it comes from: only the calls under way do, those of this process.
    for frame, _ in traceback.walk_stack(None):
        pipeline = frame.f_locals.get("self")
        if isinstance(pipeline, Pipeline):
            steps = [step for _, step in pipeline.steps[:-1] if is_initializer(step)]
            return any(getattr(step, "output", "") == "passthrough" for step in steps)
    return False


def with_params(source: Any, params: Mapping[str, Any]) -> Any:
    """An initializer with other parameters, of which there is no trace on `source`.

    `source` itself where no value is another one. Fitted as it was where the others only concern
    learning once more, which is how an ensemble seeds its members; else unfitted.
    """
    known = source.get_params(deep=True)
    changed = {k: v for k, v in params.items() if k not in known or not _same(v, known[k])}
    if not changed:
        return source
    # Theta0 that was learned already does not depend on these any more.
    of_learning = all(k == "verbose" or k.split("__")[-1] == "random_state" for k in changed)
    if is_fitted_initializer(source) and of_learning:
        copied = copy.copy(source)
        for part in {name.partition("__")[0] for name in changed if "__" in name}:
            setattr(copied, part, clone(known[part]))
        return copied.set_params(**changed)
    copied = clone(source)
    # A FrozenEstimator is its own clone.
    copied = copy.copy(source) if copied is source else copied
    return copied.set_params(**changed)


def _same(one: Any, other: Any) -> bool:
    plain = isinstance(one, str | Real) and type(one) is type(other)
    return one is other or (plain and bool(one == other))
