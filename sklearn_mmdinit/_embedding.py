"""Where neighbours are searched: among the rows, or in what a transformer makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_array

from ._coherence import Coherence
from ._pretraining import check_augmentation

__all__ = ["embedded", "fitted_embedding"]


def fitted_embedding(coherence: Coherence | None, X: np.ndarray) -> Any:
    """The embedding of a coherence, fitted to rows X (n, ...); None where there is none.

    Raises
    ------
    ValueError
        If the coherence's augmentation does not give rows back: told before the embedding and
        the search take their time.
    """
    if coherence is None:
        return None
    if coherence.augmentation is not None:
        check_augmentation(coherence.augmentation, X[:2])
    if coherence.embedding is None:
        return None
    return clone(coherence.embedding).fit(X, None)  # a frozen one asks for y


def embedded(embedding: Any, X: np.ndarray) -> np.ndarray:
    """What neighbours of rows X (n, ...) are searched in, (n, p).

    Parameters
    ----------
    embedding : transformer or None
        Fitted; None: the rows themselves.

    Raises
    ------
    ValueError
        If the embedding does not give a row of finite numbers for each.
    """
    if embedding is None:
        return X.reshape(len(X), -1)
    name = f"what embedding={type(embedding).__name__} made of X"
    made = check_array(embedding.transform(X), dtype=[np.float32, np.float64], input_name=name)
    if len(made) != len(X):
        raise ValueError(f"{name} must have {len(X)} rows, as X has: got shape {made.shape}")
    return np.asarray(made)
