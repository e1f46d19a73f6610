"""The rows that an initializer learns from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse, vstack

__all__ = ["rows_to_learn_from"]


def rows_to_learn_from(X: Any, X_unlabelled: Sequence[Any], initializer: Any) -> Any:
    """All rows together, for an initializer that is about to be fitted.

    Parameters
    ----------
    X : ndarray or sparse array of shape (n_samples, ...)
        The classifier's own.
    X_unlabelled : sequence of ndarray or sparse array
        Further rows.
    initializer : estimator
        Which one; its tags say whether it takes sparse rows.

    Returns
    -------
    ndarray or sparse array of shape (n_samples + n_further, ...)
        X itself where there are no others.

    Raises
    ------
    ValueError
        If rows are sparse, and the initializer takes no such rows.
    """
    rows = [X, *X_unlabelled]
    any_sparse = any(map(issparse, rows))
    if any_sparse and not _takes_sparse(initializer):
        # Dense copies are a matter of memory, which the caller knows and we do not.
        raise ValueError(
            f"X or X_unlabelled is sparse, and {type(initializer).__name__} learns from dense rows "
            "only. Fit it first, for example on X[:10000].toarray(), and pass the fitted one as "
            "warm_start_from; or pass dense arrays"
        )
    if len(rows) == 1:
        return X
    return vstack(rows, format="csr") if any_sparse else np.concatenate(rows)


def _takes_sparse(initializer: Any) -> bool:
    tags = getattr(initializer, "__sklearn_tags__", None)
    return tags is not None and bool(tags().input_tags.sparse)
