"""How many threads a piece of work is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch

from ._theta0 import Architecture

__all__ = ["one_thread", "worthwhile_threads"]

# Multiplications of a matrix product under which one thread does it.
_SMALL_PRODUCT = 1 << 25


@contextmanager
def worthwhile_threads(architecture: Architecture, n_rows: int) -> Iterator[None]:
    """One thread for products too small to share, as many as before for others.

    At sizes near the limit a second thread gains a few per cent on an idle machine, and on a
    busy one it costs many times the whole work, spent waiting at the end of every product.

    Parameters
    ----------
    architecture : Architecture
        The network.
    n_rows : int
        Rows that go through it at a time.
    """
    largest = max(n_in * n_out for n_in, n_out in pairwise(architecture.widths))
    if n_rows * largest > _SMALL_PRODUCT:
        yield
        return
    with one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, and as many as before afterwards."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
