"""An array that carries theta0 from one step of a Pipeline to the next.

scikit-learn hands only arrays down a Pipeline, so the array itself has to bring theta0 from
the initializer to the classifier. Every array derived from it (a slice, a sum, a copy) has
lost theta0 but not its type, so that the loss can be noticed and reported.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np


class Theta0Array(np.ndarray):
    """An ndarray with an attribute ``theta0``, a Theta0 or None where it was lost."""

    theta0: Any  # `_base` imports no Theta0
    # Above ndarray's 0, so that a stack of this and a plain array is known for a derived one.
    __array_priority__ = 1.0

    def __array_finalize__(self, obj: Any) -> None:
        # NumPy calls this for every new array, the derived ones among them.
        self.theta0 = None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        # As ndarray itself does: X.sum() is a number and not an array without axes.
        scalar = return_scalar or array.ndim == 0  # which NumPy 1 does not say
        return array[()] if scalar else super().__array_wrap__(array, context)

    # pickle, joblib.dump and joblib.Memory all go through the two methods below.
    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, args, state = cast("tuple[Any, ...]", super().__reduce__())
        return rebuild, args, (state, self.theta0)

    def __setstate__(self, state: Any) -> None:
        array_state, theta0 = state
        super().__setstate__(array_state)
        self.theta0 = theta0

    # ndarray has its own forms of these two, which would drop theta0. It is never written
    # to, so the copies share it.
    def __copy__(self) -> Theta0Array:
        return tag(np.array(self), self.theta0)

    def __deepcopy__(self, memo: dict[int, Any], /) -> Theta0Array:  # type: ignore[override]
        return tag(np.array(self), self.theta0)


def tag(X: np.ndarray, theta0: Any) -> Theta0Array:
    """A view of X, of the same memory, that carries theta0."""
    view = np.asarray(X).view(Theta0Array)
    view.theta0 = theta0
    return view


def theta0_of(X: Any) -> Any:
    """The theta0 that X carries, or None."""
    return X.theta0 if isinstance(X, Theta0Array) else None


def theta0_is_lost(X: Any) -> bool:
    """Whether X was derived from an array that carried theta0, and no longer does."""
    return isinstance(X, Theta0Array) and X.theta0 is None
