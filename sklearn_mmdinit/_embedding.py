"""Where neighbours are searched: among the rows, or in what a transformer makes of them."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array

from ._coherence import Coherence, walk_on
from ._compute import check_float32
from ._graph import Walk, check_search, on_read_only, seed_
from ._pretraining import PretrainingState, check_augmentation

__all__ = ["fitted_embedding", "settings_of", "walk_on_embedded"]


def fitted_embedding(coherence: Coherence | None, X: np.ndarray, seed: int) -> Any:
    """The embedding of a coherence, fitted to rows X (n, ...); None where there is none.

    Parameters
    ----------
    coherence : Coherence or None
        Checked.
    X : ndarray of shape (n, ...)
        Rows.
    seed : int
        Of whatever in the embedding has a ``random_state`` of None.

    Raises
    ------
    ValueError
        If the augmentation or the search is going to fail: told before the embedding and the
        search take their time; if the embedding does not become a fitted one.
    ImportError
        If the search needs a package that is not installed.
    """
    if coherence is None:
        return None
    if coherence.graph is None:
        check_search(len(X), coherence.n_neighbors, coherence.n_components, coherence.algorithm)
    if coherence.augmentation is not None:
        n_rows = 2 * min(coherence.batch_size, len(X))
        check_augmentation(coherence.augmentation, X[np.arange(n_rows) % len(X)])
    if coherence.embedding is None:
        return None
    embedding = clone(coherence.embedding)
    seed_(embedding, seed)
    # A frozen one asks for y.
    fitted = on_read_only(_name(embedding), lambda rows: embedding.fit(rows, None), X)
    if not hasattr(fitted, "transform"):
        raise ValueError(
            f"{_name(embedding)} must return itself from fit, as estimators do: got {fitted!r}"
        )
    return fitted


def _name(embedding: Any) -> str:
    return f"embedding={type(embedding).__name__}"


def settings_of(value: Any) -> Any:
    """Classes and parameters of an estimator, all the way down, as nested lists."""
    if isinstance(value, FrozenEstimator):
        return [FrozenEstimator, value.estimator]  # with what it has learned
    if isinstance(value, list | tuple):  # the steps of a pipeline
        return [settings_of(item) for item in value]
    if hasattr(value, "get_params") and not isinstance(value, type):
        parameters = sorted(value.get_params(deep=False).items())
        return [type(value), [[name, settings_of(own)] for name, own in parameters]]
    return value


def _same_settings(first: Any, second: Any) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same_settings, first, second))
    if first is second:
        return True
    try:
        return bool(joblib.hash(first) == joblib.hash(second))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False  # a function of its own


def walk_on_embedded(
    coherence: Coherence,
    state: PretrainingState,
    X: np.ndarray,
    walks: dict[str, Walk],
    verbose: int,
) -> Walk:
    """Walks among rows X (n, ...) by the neighbours that they have in a fitted embedding.

    Parameters
    ----------
    coherence : Coherence
        Checked.
    state : PretrainingState
        With the fitted embedding, or None for the rows themselves, and what it was fitted from.
    X : ndarray of shape (n, ...)
        Rows.
    walks : dict
        Those of before, and afterwards these too.
    verbose : int
        Whether the search shows its progress.

    Raises
    ------
    ValueError
        If the coherence had another embedding when pre-training began, or this one does not give
        a row of finite numbers for each.
    """
    embedding = state.embedding
    if not _same_settings(settings_of(coherence.embedding), state.embedding_settings):
        raise ValueError(
            f"embedding={coherence.embedding!r} is not what pre-training began with, which was "
            f"{embedding!r}; begin anew with fit"
        )
    if embedding is None:
        return walk_on(coherence, X.reshape(len(X), -1), walks, verbose)
    name = f"what {_name(embedding)} made of X"
    rows = _embedded(embedding, X, name)
    try:
        return walk_on(coherence, rows, walks, verbose)
    except ValueError as error:
        raise ValueError(f"In {name}: {error}") from error


def _embedded(embedding: Any, X: np.ndarray, name: str) -> np.ndarray:
    with warnings.catch_warnings():
        # One that was fitted to a DataFrame before is given the same columns, without names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        made = on_read_only(_name(embedding), embedding.transform, X)
    if np.ndim(made) < 2 or np.shape(made)[0] != len(X):
        raise ValueError(
            f"{name} must be of shape ({len(X)}, ...), a row for each of X: got {np.shape(made)}"
        )
    rows = check_array(made, dtype=[np.float64, np.float32], allow_nd=True, input_name=name)
    check_float32(rows, name)
    return np.asarray(rows).reshape(len(X), -1)
