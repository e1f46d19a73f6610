"""A method that fails leaves its estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["all_or_nothing"]

P = ParamSpec("P")
R = TypeVar("R")


def all_or_nothing(method: Callable[P, R]) -> Callable[P, R]:
    """Take back what a method has set of its estimator if it raises, or is interrupted.

    Otherwise a ``fit`` that fails would leave what it had learned of the new rows, such as their
    number of columns or their classes, beside the network of the rows before.

    Parameters
    ----------
    method : callable
        Sets attributes; what it changes inside of one stays changed.
    """

    @wraps(method)
    def whole(*args: P.args, **kwargs: P.kwargs) -> R:
        own = vars(args[0])
        before = dict(own)
        try:
            return method(*args, **kwargs)
        except BaseException:
            own.clear()
            own.update(before)
            raise

    return whole
