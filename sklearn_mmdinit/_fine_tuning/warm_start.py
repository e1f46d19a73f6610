"""What ``warm_start_from`` may be, and the theta0 it stands for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from .._network import Theta0, tag_is_lost, theta0_of
from .given import GIVEN, given
from .initializers import is_fitted_initializer, is_initializer
from .memory import remembered
from .unlabelled import rows_to_learn_from
from .wanted import Wanted

__all__ = ["Start", "resolve"]

_VALID = (
    f"None, 'auto', 'pipeline', an initializer (fitted or not, or in a FrozenEstimator), {GIVEN}"
)
_LOSING = (
    "Any step between the initializer and the classifier loses it, and so do a FeatureUnion or "
    "a ColumnTransformer around the initializer, set_output(transform='pandas'), and slicing "
    "the array. Make the initializer the step right before the classifier, or pass it as "
    "warm_start_from"
)


@dataclass(frozen=True)
class Start:
    """Where training starts, and the initializer that found it; None: nowhere in particular."""

    theta0: Theta0 | None = None
    initializer: Any = None
    learned_here: bool = False


def resolve(
    source: Any,
    X_given: Any,
    X: Any,
    wanted: Wanted,
    *,
    X_unlabelled: Sequence[Any] = (),
    refit: str | bool = "auto",
    memory: Any = None,
    seed: int | None = None,
) -> Start:
    """The theta0 that ``warm_start_from`` stands for.

    Parameters
    ----------
    source : object
        Value of ``warm_start_from``.
    X_given : array-like
        Training data as the caller passed them, perhaps with a tag.
    X : ndarray or sparse array of shape (n_samples, ...)
        The same data, validated; what an unfitted initializer learns from.
    wanted : Wanted
        The network that the result must fit.
    X_unlabelled : sequence of ndarray or sparse array, default=()
        Further rows that it learns from.
    refit : {"auto", True, False}, default="auto"
        Whether an initializer is fitted here: where it is not fitted yet, always, or never.
    memory : None, str or joblib.Memory, default=None
        Cache of fitted initializers.
    seed : int, optional
        For an initializer whose ``random_state`` is None.

    Returns
    -------
    Start
        With ``theta0=None`` where fresh weights are asked for.

    Raises
    ------
    NotFittedError
        If the initializer has to be fitted and is not.
    TypeError
        If ``source`` is none of the valid kinds.
    ValueError
        If theta0 does not fit the data or the classifier, the tag was lost, or an initializer
        that takes no sparse rows is to learn from such rows.
    """
    start = _start(source, X_given, (X, X_unlabelled), wanted, refit, memory, seed)
    if X_unlabelled and not start.learned_here:
        warnings.warn(
            "X_unlabelled is not used: no initializer is fitted here, for warm_start_from is "
            f"{source if source is None or isinstance(source, str) else type(source).__name__!r}",
            UserWarning,
            stacklevel=4,
        )
    if start.theta0 is not None:
        wanted.check(start.theta0)
    return start


def _start(
    source: Any,
    X_given: Any,
    rows: tuple[Any, Sequence[Any]],
    wanted: Wanted,
    refit: Any,
    memory: Any,
    seed: Any,
) -> Start:
    if source is None:
        return Start()
    if isinstance(source, str) and source in _TAGS:
        return Start(_TAGS[source](X_given))
    if is_initializer(source):
        return _from_initializer(source, rows, wanted, refit, memory, seed)
    if refit is True:
        raise ValueError(
            "refit_initializer=True needs an initializer in warm_start_from, got "
            f"{type(source).__name__}"
        )
    if isinstance(source, str) and not source.endswith(".safetensors"):
        raise ValueError(f"warm_start_from must be {_VALID}; got {source!r}")
    found = given(source)
    if found is None:
        hint = "; pass an instance, not the class" if isinstance(source, type) else ""
        raise TypeError(f"warm_start_from must be {_VALID}; got {source!r}{hint}")
    return Start(wanted.from_arrays(found) if isinstance(found, Mapping) else found)


def _from_tag_if_any(X: Any) -> Theta0 | None:
    if tag_is_lost(X):
        raise ValueError(
            "X comes from an initializer, but the theta0 that it carried was lost on the way. "
            f"{_LOSING}; warm_start_from=None starts from fresh weights"
        )
    return theta0_of(X)


def _from_tag(X: Any) -> Theta0 | None:
    theta0 = theta0_of(X)
    if theta0 is None:
        raise ValueError(
            f"warm_start_from='pipeline', but X ({type(X).__name__}) carries no theta0. {_LOSING}"
        )
    return theta0


_TAGS: dict[str, Callable[[Any], Theta0 | None]] = {
    "auto": _from_tag_if_any,
    "pipeline": _from_tag,
}


def _from_initializer(
    source: Any,
    rows: tuple[Any, Sequence[Any]],
    wanted: Wanted,
    refit: Any,
    memory: Any,
    seed: Any,
) -> Start:
    frozen = isinstance(source, FrozenEstimator)
    if frozen and refit is True:
        raise ValueError(
            "refit_initializer=True cannot refit a FrozenEstimator; pass what it wraps"
        )
    fitted = is_fitted_initializer(source)
    if not fitted and (frozen or refit is False):
        raise NotFittedError(
            f"warm_start_from is a {type(source).__name__} that is not fitted, and "
            f"{'a frozen one' if frozen else 'refit_initializer=False'} is never fitted here. "
            "Call its fit first. In a parameter grid write FrozenEstimator(initializer) or "
            "initializer.theta0_: scikit-learn un-fits the estimators that a grid holds"
        )
    if fitted and refit is not True:
        _check_feature_names(source, wanted)
        return Start(source.theta0_, source)
    # Before the long part: a mismatch that the parameters already show.
    wanted.check_initializer(source)
    fresh = clone(source)
    if seed is not None and fresh.get_params(deep=False).get("random_state", seed) is None:
        fresh.set_params(random_state=seed)
    X = rows_to_learn_from(*rows, source)
    initializer = fresh.fit(X) if memory is None else remembered(fresh, X, memory)
    return Start(initializer.theta0_, initializer, learned_here=True)


def _check_feature_names(source: Any, wanted: Wanted) -> None:
    learned = getattr(source, "feature_names_in_", None)
    if learned is None or wanted.feature_names is None:
        return
    if tuple(learned) != wanted.feature_names:
        raise ValueError(
            f"the initializer was fitted on the columns {list(learned)}, but X has "
            f"{list(wanted.feature_names)}; they must be the same, in the same order"
        )
