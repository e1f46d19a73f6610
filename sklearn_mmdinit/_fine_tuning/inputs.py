"""What a classifier takes as X: the one place that says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from .._compute import as_float32

__all__ = ["CheckedInputs", "named"]


@contextmanager
def named(argument: str) -> Iterator[None]:
    """Begin an error with the argument that it is about: scikit-learn calls all rows X."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{argument}: {error}") from error


class CheckedInputs(BaseEstimator):
    """An estimator whose X is checked and put into float32."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, *arrays: Any, **checks: Any) -> Any:
        """X in float32, a sparse one as CSR; and y where it is given."""
        # Float64 is kept first, so that a number too large for float32 can be named; whatever
        # else overflows, the check itself reports as infinity.
        with np.errstate(over="ignore"):
            checked = validate_data(
                self,
                *arrays,
                accept_sparse="csr",
                dtype=[np.float32, np.float64],
                **checks,
            )
        if len(arrays) == 1:
            return as_float32(checked)
        return as_float32(checked[0]), checked[1]

    def _inputs(self, X: Any) -> Any:
        """Validated rows as the network takes them, once it is known."""
        return as_float32(X)

    def _validated_unlabelled(self, X_unlabelled: Any) -> tuple[Any, ...]:
        """Further rows in float32: none, those of an array, or those of each of a tuple."""
        if X_unlabelled is None:
            return ()
        further = X_unlabelled if isinstance(X_unlabelled, tuple) else (X_unlabelled,)
        with named("X_unlabelled"):
            return tuple(self._validated(X, reset=False) for X in further)
