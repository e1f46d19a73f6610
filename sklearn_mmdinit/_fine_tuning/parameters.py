"""Parameters of a classifier: which values are valid, and which ones belong to its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.utils import check_scalar

from .._compute import torch_device
from .._documentation import DocumentedEstimator
from .callbacks import check_callbacks
from .initializers import is_fitted_initializer, with_params
from .labels import check_unlabelled_label
from .net import ROUTED_PREFIXES, check_skorch_params, find_optimizer
from .weights import check_class_weight

__all__ = ["RoutedParameters", "check_choices", "check_parameters", "plain"]

_REFIT: dict[str, tuple[Any, ...]] = {"refit_initializer": ("auto", True, False)}


def plain(value: Any) -> Any:
    """A number, truth or text of NumPy's, as a grid over an array has them, as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def check_choices(estimator: Any, choices: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise a ValueError that names the first parameter that has none of its valid values."""
    for name, valid in choices.items():
        value = plain(getattr(estimator, name))
        # Not `value in valid`: 1 == True, and an array has no single truth.
        if not any(type(value) is type(v) and value == v for v in valid):
            raise ValueError(f"{name} must be one of {list(valid)}, got {value!r}")


def check_parameters(estimator: Any) -> None:
    """Raise an error that names the first parameter that is not valid, and what is valid.

    Those of the network are not among them.
    """
    check_choices(estimator, _REFIT)
    check_scalar(estimator.max_iter, "max_iter", Integral, min_val=0)
    check_scalar(estimator.batch_size, "batch_size", Integral, min_val=1)
    check_scalar(
        estimator.learning_rate_init,
        "learning_rate_init",
        Real,
        min_val=0,
        include_boundaries="neither",
    )
    # NaN compares to nothing.
    if not math.isfinite(estimator.learning_rate_init):
        raise ValueError(
            f"learning_rate_init must be a finite number > 0, got {estimator.learning_rate_init!r}"
        )
    check_scalar(estimator.verbose, "verbose", Integral)
    check_class_weight(estimator.class_weight)
    check_unlabelled_label(estimator.unlabelled_label)
    check_callbacks(estimator.callbacks)
    if not isinstance(estimator.skorch_params, dict | None):
        raise ValueError(f"skorch_params must be a dict or None, got {estimator.skorch_params!r}")
    network = "module" if hasattr(estimator, "module") else "hidden_layer_sizes"
    check_skorch_params(estimator.skorch_params or {}, network)
    find_optimizer(estimator.optimizer)
    torch_device(estimator.device)


class RoutedParameters(DocumentedEstimator):
    """An estimator with parts whose parameters can be set and searched as its own.

    Parts are the initializer in ``warm_start_from`` and the pieces of the skorch net, whose
    parameters are kept in ``skorch_params``. No object that a caller passed is changed.
    """

    warm_start_from: Any
    refit_initializer: Any
    skorch_params: dict[str, Any] | None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this estimator.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add those of the initializer and of the skorch net.

        Returns
        -------
        params : dict
            Values by name.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and isinstance(self.skorch_params, dict):
            params |= {k: v for k, v in self.skorch_params.items() if k.startswith(ROUTED_PREFIXES)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the initializer and of the skorch net among them.

        Parameters
        ----------
        **params : dict
            Values by name. Another value of ``warm_start_from__<name>`` puts an unfitted copy
            of the initializer in its place, unless it is ``random_state`` or ``verbose``, which
            what is learned already does not depend on; ``optimizer__<name>`` and the like go
            into a new ``skorch_params``.

        Returns
        -------
        self : estimator
            This one.
        """
        routed = {k: params.pop(k) for k in list(params) if k.startswith(ROUTED_PREFIXES)}
        nested = {k: params.pop(k) for k in list(params) if k.startswith("warm_start_from__")}
        super().set_params(**params)
        if routed:
            self.skorch_params = {**(self.skorch_params or {}), **routed}
        if nested:
            if not hasattr(self.warm_start_from, "set_params"):
                raise ValueError(
                    f"{min(nested)!r} cannot be set: warm_start_from is not an initializer but "
                    f"{self.warm_start_from!r}"
                )
            own = {k.removeprefix("warm_start_from__"): v for k, v in nested.items()}
            self.warm_start_from = with_params(self.warm_start_from, own)
        return self

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        # A plain clone drops what the initializer has learned, and every fold of a
        # cross-validation would learn it again.
        kept = plain(self.refit_initializer) is not True
        if kept and is_fitted_initializer(self.warm_start_from):
            cloned.warm_start_from = self.warm_start_from
        return cloned
