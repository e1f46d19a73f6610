"""Where neighbours are searched: among the rows, or in what a transformer makes of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array

from ._coherence import Coherence, walk_on
from ._compute import check_float32
from ._graph import Walk, check_search
from ._pretraining import check_augmentation

__all__ = ["fitted_embedding", "walk_on_embedded"]


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
        If the augmentation or the search is going to fail: told before the embedding takes its
        time.
    """
    if coherence is None or coherence.embedding is None:
        return None
    if coherence.graph is None:
        check_search(len(X), coherence.n_neighbors, coherence.n_components, coherence.algorithm)
    if coherence.augmentation is not None:
        n_rows = 2 * min(coherence.batch_size, len(X))
        check_augmentation(coherence.augmentation, X[np.arange(n_rows) % len(X)])
    embedding = clone(coherence.embedding)
    _seed(embedding, seed)
    return embedding.fit(_read_only(X), None)  # a frozen one asks for y


def walk_on_embedded(
    coherence: Coherence, embedding: Any, X: np.ndarray, walks: dict[str, Walk], verbose: int
) -> Walk:
    """Walks among rows X (n, ...) by the neighbours that they have in a fitted embedding.

    Parameters
    ----------
    coherence : Coherence
        Checked.
    embedding : transformer or None
        Fitted; None: the rows themselves.
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
    if (coherence.embedding is None) != (embedding is None):
        raise ValueError(
            f"embedding={coherence.embedding!r} is not what pre-training began with, which was "
            f"{embedding!r}; begin anew with fit"
        )
    if embedding is None:
        return walk_on(coherence, X.reshape(len(X), -1), walks, verbose)
    name = f"what embedding={type(embedding).__name__} made of X"
    rows = _embedded(embedding, X, name)
    try:
        return walk_on(coherence, rows, walks, verbose)
    except ValueError as error:
        raise ValueError(f"In {name}: {error}") from error


def _embedded(embedding: Any, X: np.ndarray, name: str) -> np.ndarray:
    with warnings.catch_warnings():
        # One that was fitted to a DataFrame before is given the same columns, without names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        made = embedding.transform(_read_only(X))
    if np.ndim(made) < 2 or np.shape(made)[0] != len(X):
        raise ValueError(
            f"{name} must be of shape ({len(X)}, ...), a row for each of X: got {np.shape(made)}"
        )
    rows = check_array(made, dtype=[np.float64, np.float32], allow_nd=True, input_name=name)
    check_float32(rows)
    return np.asarray(rows).reshape(len(X), -1)


def _read_only(X: np.ndarray) -> np.ndarray:
    """A view that a transformer with ``copy=False`` must copy: theta0 is learned from X too."""
    view = X.view()
    view.flags.writeable = False
    return view


def _seed(embedding: Any, seed: int) -> None:
    """Let every ``random_state`` of None follow from the seed; not those of what is frozen."""
    if isinstance(embedding, FrozenEstimator):
        return
    parameters = embedding.get_params()
    frozen = [f"{name}__" for name, v in parameters.items() if isinstance(v, FrozenEstimator)]
    names = [
        name
        for name, value in sorted(parameters.items())
        if name.rpartition("__")[2] == "random_state"
        and value is None
        and not name.startswith(tuple(frozen))
    ]
    draws = np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=len(names))
    embedding.set_params(**dict(zip(names, draws.tolist(), strict=True)))
