"""The mini-batches of a pass over an array's rows, a portion at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .._base.random_streams import permutation, rows_generator, walk_generator
from ..graph.walks import Walk

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
