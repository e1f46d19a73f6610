"""Mini-batches, a portion at a time: rows of an array in an order of our own, or a DataLoader's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader

from .._compute import array_of, permutation
from .batches import Batches

__all__ = ["Feed", "LoaderFeed", "RowFeed", "examples_of"]


class Feed(Protocol):
    """Where the mini-batches of a pass come from."""

    @property
    def n_rows(self) -> int:
        """Rows of a mini-batch."""

    @property
    def steps_a_pass(self) -> int | None:
        """Steps of a pass; None: it is not known before its end."""

    def portions(
        self, pass_number: int, step: int, window: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """The mini-batches of a pass, none beyond the end of a window in one portion.

        Parameters
        ----------
        pass_number : int
            From 0.
        step : int
            Steps taken before this pass.
        window : int
            Steps of a window; it may span passes.

        Yields
        ------
        first : int
            Number of the portion's first step in the pass.
        mini_batches : Tensor of shape (n_steps, n_rows, ...)
            On the CPU.
        """


@dataclass(frozen=True)
class RowFeed:
    """Rows of an array; a memory map is read a portion at a time.

    Each pass visits the rows in a new random order and leaves out the last n modulo the batches'
    size of it.

    Parameters
    ----------
    X : ndarray of shape (n, ...)
        Unlabelled rows.
    batches : Batches
        The rows of each step; their size is at most n.
    seed : int
        Of the orders.
    examples : callable
        Makes a tensor of rows.
    most : int, default=None
        Steps whose mini-batches may be gathered at a time; None: what the batches say.
    """

    X: np.ndarray
    batches: Batches
    seed: int
    examples: Callable[[np.ndarray], torch.Tensor]
    most: int | None = None

    @property
    def n_rows(self) -> int:
        """Rows of a mini-batch."""
        return self.batches.n_rows

    @property
    def steps_a_pass(self) -> int:
        """Steps of a pass."""
        return len(self.X) // self.batches.size

    def portions(
        self, pass_number: int, step: int, window: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """The mini-batches of a pass; see :class:`Feed`."""
        n_steps, size = self.steps_a_pass, self.batches.size
        order = permutation(self.seed, pass_number, len(self.X))
        order = order[: n_steps * size].reshape(n_steps, size)
        most = self.most or self.batches.n_steps(self.X[0].size)
        for first, n in _portions(n_steps, step, window, most):
            own = order[first : first + n].ravel()
            yield first, self.examples(self.batches.gathered(self.X, own, step + first))


def _portions(
    steps_a_pass: int, step: int, window: int, most: int | None
) -> Iterator[tuple[int, int]]:
    """First step and number of steps of portions of a pass, up to the end of each window."""
    first = 0
    while first < steps_a_pass:
        n_steps = min(window - (step + first) % window, steps_a_pass - first)
        n_steps = min(n_steps, n_steps if most is None else most)
        yield first, n_steps
        first += n_steps


@dataclass(frozen=True)
class LoaderFeed:
    """The mini-batches of a DataLoader, one at a time; those smaller than the first are left out.

    Parameters
    ----------
    loader : DataLoader
        Of examples, or of tuples that begin with them.
    opened : iterable
        What it hands out in the first pass, which was begun to look at its first mini-batch.
    n_rows : int
        Rows of its first mini-batch.
    examples : callable
        Makes a tensor that a network takes of an array.
    """

    loader: DataLoader[Any]
    opened: Iterable[Any]
    n_rows: int
    examples: Callable[[np.ndarray], torch.Tensor]

    @property
    def steps_a_pass(self) -> int | None:
        """What the loader says."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    def portions(
        self, pass_number: int, step: int, window: int
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """The mini-batches of a pass; see :class:`Feed`.

        Raises
        ------
        ValueError
            If a mini-batch is not finite or of another shape, or there is none in the pass.
        """
        first, number, shape = 0, -1, None
        for number, item in enumerate(self.loader if pass_number else self.opened):
            batch = examples_of(item)
            if len(batch) < self.n_rows:
                continue
            shape = batch.shape[1:] if shape is None else shape
            _check_batch(batch, shape, number)
            yield first, self.examples(batch)[None]
            first += 1
        if first == 0:
            raise ValueError(
                f"the DataLoader handed out {number + 1} mini-batches in pass {pass_number}, none "
                f"of {self.n_rows} examples or more, which its first one had; it must begin anew "
                "each time it is iterated, as an IterableDataset does whose __iter__ returns a new "
                "iterator"
            )


def _check_batch(batch: np.ndarray, shape: tuple[int, ...], number: int) -> None:
    """Raise unless a mini-batch is finite and its examples have this shape."""
    if batch.shape[1:] != shape:
        raise ValueError(
            f"the DataLoader hands out examples of shape {batch.shape[1:]} in mini-batch {number} "
            f"(the first is 0), and of shape {shape} before"
        )
    if batch.dtype.kind == "f" and not np.isfinite(batch).all():
        raise ValueError(
            "the DataLoader hands out NaN or infinity, or a value too large for float32, in "
            f"mini-batch {number} (the first is 0)"
        )


def examples_of(item: Any) -> np.ndarray:
    """The examples in what a DataLoader hands out: itself, or the first part of a tuple.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if not isinstance(item, torch.Tensor):
        raise TypeError(
            "a DataLoader must hand out tensors, or tuples that begin with one, got "
            f"{type(item).__name__}"
        )
    return np.asarray(array_of(item.float() if item.is_floating_point() else item))
