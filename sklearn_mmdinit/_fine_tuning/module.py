"""Any PyTorch module as what a classifier trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .._compute import as_float32
from .._modules import (
    ModuleSource,
    described,
    described_with_logits,
    keywords_of_initializer,
    takes_integers,
)
from .._network import (
    ModuleArchitecture,
    Theta0,
    arrays_of,
    as_arrays,
    put_arrays_,
    start_module_,
)
from .initializers import unfrozen
from .network import Network

__all__ = ["WantedModule", "as_inputs", "source_of_initializer"]

# Rows that a module is tried on.
_N_ROWS = 4


def source_of_initializer(initializer: Any, seed: int) -> ModuleSource | None:
    """Where an initializer has its module from; None where it has none, or is no initializer."""
    initializer = unfrozen(initializer)
    if isinstance(initializer, type) or not hasattr(initializer, "get_params"):
        return None
    parameters = initializer.get_params(deep=False)
    module = parameters.get("module")
    if module is None:
        return None
    return ModuleSource(module, keywords_of_initializer(parameters), seed)


def as_inputs(X: Any, integers: bool) -> Any:
    """Rows as a module takes them: whole numbers as int64, or float32.

    Raises
    ------
    ValueError
        If they are not whole.
    """
    if not integers:
        return as_float32(X)
    whole = X.astype(np.int64, copy=False)
    given, rounded = (X.data, whole.data) if issparse(X) else (X, whole)
    if (wrong := given != rounded).any():
        raise ValueError(f"X must hold whole numbers, as it did in fit, got {given[wrong].flat[0]}")
    return whole


def _module_at(source: ModuleSource, theta0: Theta0) -> nn.Module:
    """A module of its own that starts at theta0, in single precision."""
    module = source.build().float()
    start_module_(module, theta0)
    return module


@dataclass(frozen=True)
class WantedModule:
    """A module that takes X and returns a logit for each class of y. Made by :meth:`of`.

    Parameters
    ----------
    source : ModuleSource
        Where modules come from.
    architecture : ModuleArchitecture
        What they have in common.
    integers : bool
        Whether they take the whole numbers of X as such.
    batch_norm : bool
        Whether they have batch normalisation.
    feature_names : tuple of str, optional
        Of X.
    """

    source: ModuleSource
    architecture: ModuleArchitecture
    integers: bool
    batch_norm: bool
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        source: ModuleSource,
        X: Any,
        n_classes: int,
        feature_names: tuple[str, ...] | None = None,
    ) -> WantedModule:
        """Try the module on a few rows.

        Raises
        ------
        ValueError
            If it does not take them, or does not return a logit for each class.
        """
        rows = X[:_N_ROWS].toarray() if issparse(X) else X[:_N_ROWS]
        module = source.build()
        if next(module.parameters(), None) is None:
            raise ValueError(
                f"there is nothing to train: {type(module).__name__} has no parameters"
            )
        architecture = described_with_logits(source, module, rows)
        if (found := architecture.n_classes) != n_classes:
            raise ValueError(
                f"y has {n_classes} classes, but the module {architecture.module} returns "
                f"{found} logits; the two must be the same"
            )
        integers = X.dtype.kind in "iu" and takes_integers(module)
        batch_norm = any(isinstance(part, _BatchNorm) for part in module.modules())
        return cls(source, architecture, integers, batch_norm, feature_names)

    def check(self, theta0: Theta0) -> None:
        """Raise a ValueError where training cannot start at theta0."""
        theirs, own = theta0.architecture, self.architecture
        if not isinstance(theirs, ModuleArchitecture):
            raise ValueError(
                "the theta0 to start from is of a multi-layer perceptron with the widths "
                f"{theirs.widths}, but this classifier trains the module {own.module}; give the "
                "initializer module=..., or use MLPClassifier"
            )
        if theirs.module == own.module and theirs.n_classes != own.n_classes:
            raise ValueError(
                f"the theta0 to start from has n_classes={theirs.n_classes}, but y has "
                f"n_classes={own.n_classes}; the two must be the same"
            )
        start_module_(self.source.build(), theta0)

    def check_initializer(self, initializer: Any) -> None:
        """The same of what an initializer is about to learn, as far as its parameters show it."""
        name = type(initializer).__name__
        source = source_of_initializer(initializer, seed=0)
        if source is None:
            raise ValueError(
                f"the initializer {name} learns a multi-layer perceptron, but this classifier "
                f"trains the module {self.architecture.module}; give the initializer module=..., "
                "or use MLPClassifier"
            )
        theirs = source.build()
        description = described(source, theirs, self.architecture.input_shape)
        try:
            start_module_(self.source.build(), Theta0(description, arrays_of(theirs)))
        except ValueError as error:
            raise ValueError(
                f"the initializer {name} would learn what this module cannot start at: {error}"
            ) from error

    def from_arrays(self, arrays: Mapping[str, Any]) -> Theta0:
        """The theta0 that named arrays hold, such as a ``state_dict``."""
        module = self.source.build().float()
        put_arrays_(module, as_arrays(arrays))
        return Theta0(self.architecture, arrays_of(module))

    def fresh(self) -> Theta0:
        """The weights that the module comes with."""
        return Theta0(self.architecture, arrays_of(self.source.build()))

    def network(self, theta0: Theta0) -> Network:
        """The module that starts at theta0."""
        return Network(
            _module_at,
            {"source": self.source, "theta0": theta0},
            batch_norm=self.batch_norm,
            draws=True,
        )
