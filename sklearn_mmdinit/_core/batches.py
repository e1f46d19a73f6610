"""The mini-batches of a pass, a portion at a time: of an array's rows, or a DataLoader's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from .estimators import told
from .graph.walk import Walk
from .numbers import array_of
from .random import permutation, rows_generator, walk_generator

Augmentation = Callable[[np.ndarray, np.random.Generator], Any]

# Numbers of the mini-batches that are gathered at a time: 64 MiB in float32.
_NUMBERS_AT_A_TIME = 1 << 24


@dataclass(frozen=True)
class WalkEnds:
    """Walks from each row of a mini-batch, whose ends go with it."""

    walk: Walk  # on the graph of the rows
    mean_length: float  # mean number of edges
    seed: int  # of the draws
    augmentation: Augmentation | None = None  # changes the rows at both ends

    def gathered(self, X: np.ndarray, starts: np.ndarray, first_step: int) -> np.ndarray:
        """Rows (n, 2 B, ...) of X for n steps: the starts (n, B) of walks, and then their ends."""
        steps = range(first_step, first_step + len(starts))
        randoms = [walk_generator(self.seed, step) for step in steps]
        ends = self.walk.ends(starts, self.mean_length, randoms)
        rows = X[np.concatenate([starts, ends], axis=1)]
        if self.augmentation is None:
            return rows
        changed = (
            augmented(self.augmentation, own, rows_generator(self.seed, step))
            for own, step in zip(rows, steps, strict=True)
        )
        return np.stack(list(changed))


@dataclass(frozen=True)
class RowBatches:
    """Mini-batches of rows of an array, each row once a pass; a memory map is read as it goes."""

    X: np.ndarray  # the rows
    size: int  # rows of the order of a pass that a step takes
    seed: int  # of the orders
    examples: Callable[[np.ndarray], torch.Tensor]  # makes tensors of rows
    walk_ends: WalkEnds | None = None  # what doubles each mini-batch
    generators: tuple[torch.Generator, ...] = ()  # whose states passes depend on, beside the seed

    @property
    def steps_a_pass(self) -> int:
        """Steps of a pass; rows that fill none are left out, others each time."""
        return len(self.X) // self.size

    def portions(
        self, pass_number: int, step: int, window: int, first: int = 0
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """First step in the pass and mini-batches (n, B, ...); `step`: those before the pass."""
        n_steps = self.steps_a_pass
        order = permutation(self.seed, pass_number, len(self.X))[: n_steps * self.size]
        order = order.reshape(n_steps, self.size)
        # Of each row its own and those of a walk's end, or the draws of a long walk.
        numbers = max(2 * self.X[0].size, self.walk_ends.mean_length if self.walk_ends else 1)
        most = max(int(_NUMBERS_AT_A_TIME / (self.size * numbers)), 1)
        while first < n_steps:
            n = min(window - (step + first) % window, n_steps - first, most)
            yield first, self.gathered(order[first : first + n], step + first)
            first += n

    def gathered(self, order: np.ndarray, first_step: int) -> torch.Tensor:
        """Mini-batches (n, B, ...) of the rows (n, size) of n steps."""
        if self.walk_ends is None:
            return self.examples(self.X[order])
        return self.examples(self.walk_ends.gathered(self.X, order, first_step))


def augmented(augmentation: Augmentation, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows (n, ...) after the augmentation; a ValueError unless it returns rows like them."""
    changed, name = np.asarray(augmentation(rows, rng)), f"augmentation={augmentation!r}"
    if changed.shape != rows.shape or changed.dtype.kind != rows.dtype.kind:
        valid = f"rows like those given, of shape {rows.shape} and type {rows.dtype}"
        found = f"shape {changed.shape}, {changed.dtype}"
        raise ValueError(f"{name} must return {valid}; got {found}")
    with np.errstate(over="ignore"):  # to infinity, as where rows become a mini-batch
        kept = changed.astype(rows.dtype, copy=False).astype(np.float32, copy=False)
    if not np.isfinite(kept).all():
        raise ValueError(f"{name} returned NaN or infinity, or a value too large for float32")
    return changed


@dataclass(frozen=True)
class LoaderBatches:
    """The mini-batches of a DataLoader, one at a time; smaller ones than the first left out."""

    loader: DataLoader[Any]  # iterated once a pass
    opened: Iterable[Any]  # what its first iteration hands out, which was begun before
    size: int  # examples of its first mini-batch
    examples: Callable[[np.ndarray], torch.Tensor]  # makes tensors of rows

    @property
    def steps_a_pass(self) -> int | None:
        """What the loader says; None: it is not known before the end of a pass."""
        try:
            return len(self.loader)
        except TypeError:
            return None

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """Those that the order of a pass, and whatever else there is, may be drawn by."""
        own = self.loader.generator
        return (torch.default_generator, *(() if own is None else (own,)))

    def portions(
        self, pass_number: int, step: int, window: int, first: int = 0
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """As of :class:`RowBatches`, a mini-batch at a time, always from the first one on."""
        number, shape = -1, None
        for number, item in enumerate(handed_out(self.loader) if pass_number else self.opened):
            with told(f"mini-batch {number} of the DataLoader"):
                batch = examples_of(item)
            if len(batch) < self.size:
                continue
            shape = batch.shape[1:] if shape is None else shape
            if batch.shape[1:] != shape:
                found = f"examples of shape {batch.shape[1:]}, and of shape {shape} before"
                raise ValueError(f"the DataLoader hands out {found}, in mini-batch {number}")
            if batch.dtype.kind == "f" and not np.isfinite(batch).all():
                found = "NaN or infinity, or a value too large for float32,"
                raise ValueError(f"the DataLoader hands out {found} in mini-batch {number}")
            yield first, self.examples(batch)[None]
            first += 1
        if first == 0:
            found = f"{number + 1} mini-batches in pass {pass_number}, none of {self.size} examples"
            hint = "it must begin anew each time it is iterated"
            raise ValueError(f"the DataLoader handed out {found}; {hint}")


def handed_out(loader: Any) -> Iterator[Any]:
    """The mini-batches of a DataLoader; an error says that it cannot be read."""
    with told(f"{type(loader.dataset).__name__} cannot be read"):
        yield from loader


# Where the mini-batches of a pass come from.
Batches = RowBatches | LoaderBatches


def examples_of(item: Any) -> np.ndarray:
    """What a DataLoader hands out, or its first part, as an array."""
    if isinstance(item, tuple | list) and item:
        item = item[0]
    if not isinstance(item, torch.Tensor):
        valid = "tensors, or tuples that begin with one"
        raise TypeError(f"a DataLoader must hand out {valid}, got {type(item).__name__}")
    return np.asarray(array_of(item.float() if item.is_floating_point() else item))
