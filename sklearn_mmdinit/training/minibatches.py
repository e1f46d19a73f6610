"""Mini-batches of an epoch over an array's rows, with the second inputs of positive pairs."""

from __future__ import annotations

from collections.abc import Callable
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
class PositivePairs:
    """Draws positive pairs: a row of a mini-batch, and the row where a random walk from it ends."""

    walk: Walk  # on the graph of the rows
    mean_length: float  # mean number of edges
    seed: int  # of the draws
    augmentation: Augmentation | None = None  # changes both rows of a pair

    def gathered(self, X: np.ndarray, starts: np.ndarray, first_step: int) -> np.ndarray:
        """Rows (n, 2 B, ...) of X for n steps: the rows `starts` (n, B), then the ends of walks."""
        steps = range(first_step, first_step + len(starts))
        generators = [walk_generator(self.seed, step) for step in steps]
        ends = self.walk.ends(starts, self.mean_length, generators)
        rows = X[np.concatenate([starts, ends], axis=1)]
        if self.augmentation is None:
            return rows
        changed = (
            augmented(self.augmentation, rows_of_step, rows_generator(self.seed, step))
            for rows_of_step, step in zip(rows, steps, strict=True)
        )
        return np.stack(list(changed))


@dataclass(frozen=True)
class RowBatches:
    """Mini-batches of an array's rows, each at most once an epoch; a memory map is not copied."""

    X: np.ndarray
    size: int  # rows of an epoch that a step takes
    seed: int  # of the order of the rows
    as_examples: Callable[[np.ndarray], torch.Tensor]  # turns rows into a tensor
    pairs: PositivePairs | None = None  # doubles each mini-batch

    @property
    def steps_an_epoch(self) -> int:
        """Full mini-batches of an epoch. Rows that fill none are left out, others in each epoch."""
        return len(self.X) // self.size

    @property
    def most_steps_at_a_time(self) -> int:
        """Mini-batches that are gathered at once."""
        # For each row: its values and those of the second row of its pair, or the draws of a walk.
        numbers = max(2 * self.X[0].size, self.pairs.mean_length if self.pairs else 1)
        return max(int(_NUMBERS_AT_A_TIME / (self.size * numbers)), 1)

    def order(self, epoch: int) -> np.ndarray:
        """Rows (steps_an_epoch, size) of each step of an epoch."""
        n_rows = self.steps_an_epoch * self.size
        return permutation(self.seed, epoch, len(self.X))[:n_rows].reshape(-1, self.size)

    def gathered(self, order: np.ndarray, first_step: int) -> torch.Tensor:
        """Mini-batches (n, B, ...) of the rows (n, size) of n steps."""
        if self.pairs is None:
            return self.as_examples(self.X[order])
        return self.as_examples(self.pairs.gathered(self.X, order, first_step))


def augmented(augmentation: Augmentation, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Augmented rows (n, ...); a ValueError unless they are finite, of the same shape and type."""
    changed, name = np.asarray(augmentation(rows, rng)), f"augmentation={augmentation!r}"
    if changed.shape != rows.shape or changed.dtype.kind != rows.dtype.kind:
        valid = f"rows like those given, of shape {rows.shape} and type {rows.dtype}"
        got = f"shape {changed.shape}, {changed.dtype}"
        raise ValueError(f"{name} must return {valid}; got {got}")
    with np.errstate(over="ignore"):  # what is too large becomes infinity
        kept = changed.astype(rows.dtype, copy=False).astype(np.float32, copy=False)
    if not np.isfinite(kept).all():
        raise ValueError(f"{name} returned NaN or infinity, or a value too large for float32")
    return changed
