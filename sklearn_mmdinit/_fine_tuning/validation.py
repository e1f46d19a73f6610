"""Which rows train the network, and which ones choose its best epoch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from numbers import Real
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from .inputs import named

__all__ = ["split_rows"]


def split_rows(
    validation_split: Any, X: Any, y: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training rows and of the validation rows.

    Parameters
    ----------
    validation_split : float in (0, 1) or splitter
        A fraction drawn at random, stratified where every class allows it; or an object
        with scikit-learn's ``split``, whose first split is used.
    X : ndarray or sparse array of shape (n_samples, ...)
        For the splitter: rows with a label and a weight above 0.
    y : ndarray of int of shape (n_samples,)
        Class of each row, counted from 0.
    seed : int
        Of the random draw; a splitter has its own.

    Returns
    -------
    train, valid : ndarray of int
        Neither is empty.

    Raises
    ------
    ValueError
        If ``validation_split`` is something else, leaves a side without rows, or names rows
        that there are not.
    """
    if hasattr(validation_split, "split") and not isinstance(validation_split, str):
        with _named(validation_split):
            split = next(iter(validation_split.split(X, y)), None)
        if split is None:
            raise ValueError(f"validation_split={validation_split!r} gives no split")
        train, valid = map(np.asarray, split)
        if len(train) == 0 or len(valid) == 0:
            raise ValueError(
                f"validation_split={validation_split!r} gives {len(train)} training and "
                f"{len(valid)} validation rows; both need at least one"
            )
        if (last := max(train.max(), valid.max())) >= len(y):
            raise ValueError(
                f"validation_split={validation_split!r} names row {last}, but only {len(y)} rows "
                "have a label and a weight above 0; a splitter is given no others"
            )
        return train, valid
    is_fraction = isinstance(validation_split, Real) and not isinstance(validation_split, bool)
    if not (is_fraction and 0 < validation_split < 1):
        raise ValueError(
            "validation_split must be a float between 0 and 1, both excluded, a scikit-learn "
            f"splitter, a tuple (X_val, y_val) or None, got {validation_split!r}"
        )
    # A stratified draw needs two rows of each class, and room for all classes on both sides.
    counts = np.bincount(y)
    counts = counts[counts > 0]
    n_valid = int(np.ceil(validation_split * len(y)))
    possible = counts.min() >= 2 and min(n_valid, len(y) - n_valid) >= len(counts)
    with _named(validation_split):
        train, valid = train_test_split(
            np.arange(len(y)),
            test_size=float(validation_split),
            stratify=y if possible else None,
            random_state=seed,
        )
    return train, valid


def _named(validation_split: Any) -> AbstractContextManager[None]:
    return named(f"validation_split={validation_split!r}")
