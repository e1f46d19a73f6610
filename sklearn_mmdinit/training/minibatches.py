"""Mini-batches of an epoch over an array's rows, with the second inputs of positive pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np
import torch

from .._base.environment import own_generators
from .._base.random_streams import Purpose, generator_of, permutation, seed_of
from .._base.validation import add_error_context, shortened
from ..graph.walks import Walk

# Maps a tensor (B, ...) to one of the same shape, on its device.
Augmentation = Callable[[torch.Tensor], torch.Tensor]

# At most this many mini-batches are gathered at a time, and at most this many values (64 MiB in
# float32).
_STEPS_AT_A_TIME, _NUMBERS_AT_A_TIME = 100, 1 << 24


@dataclass(frozen=True)
class PositivePairs:
    """Draws positive pairs: a row of a mini-batch, and the row where a random walk from it ends."""

    walk: Walk | None  # on the graph of the rows; None: each row is the second of its own pair
    mean_length: float  # mean number of edges
    seed: int  # of the draws
    augmentation: Augmentation | None = None  # changes both rows of a pair

    def gathered(self, X: np.ndarray, starts: np.ndarray, first_step: int) -> np.ndarray:
        """Rows (n, 2 B, ...) of X for n steps: the rows `starts` (n, B), then the ends of walks."""
        steps, ends = range(first_step, first_step + len(starts)), starts
        if self.walk is not None:
            generators = [generator_of(self.seed, Purpose.WALK, step) for step in steps]
            ends = self.walk.ends(starts, self.mean_length, generators)
        return X[np.concatenate([starts, ends], axis=1)]


@dataclass(frozen=True)
class RowBatches:
    """Mini-batches of an array's rows. A memory map is not copied.

    An epoch takes each row at most once, apart from the second rows of pairs.
    """

    X: np.ndarray
    size: int  # rows of a step, without the second rows of pairs
    seed: int  # of the order of the rows
    as_examples: Callable[[np.ndarray], torch.Tensor]  # turns rows into a tensor
    pairs: PositivePairs | None = None  # doubles each mini-batch

    @property
    def steps_an_epoch(self) -> int:
        """Full mini-batches of an epoch. The rows left out differ between epochs."""
        return len(self.X) // self.size

    @property
    def most_steps_at_a_time(self) -> int:
        """Mini-batches that are gathered at once."""
        # What one row of a step needs in memory: the values of both rows of its pair, or the draws
        # of its walk, whichever is more.
        numbers = max(2 * self.X[0].size, self.pairs.mean_length if self.pairs else 1)
        return min(max(int(_NUMBERS_AT_A_TIME / (self.size * numbers)), 1), _STEPS_AT_A_TIME)

    def order(self, epoch: int) -> np.ndarray:
        """Numbers of the rows (steps_an_epoch, size): a line for each step of an epoch."""
        n_rows = self.steps_an_epoch * self.size
        return permutation(self.seed, epoch, len(self.X))[:n_rows].reshape(-1, self.size)

    def gathered(self, order: np.ndarray, first_step: int) -> torch.Tensor:
        """Mini-batches (n, B, ...) of the rows (n, size) of n steps."""
        if self.pairs is None:
            return self.as_examples(self.X[order])
        return self.as_examples(self.pairs.gathered(self.X, order, first_step))

    def mini_batches(
        self, orders: Iterable[np.ndarray], step: int, device: torch.device
    ) -> Iterator[torch.Tensor]:
        """Mini-batches (B, ...) on a device, of the rows (size,) of each step; `step` is the first.

        Those of many steps are gathered together, because it is faster to draw their walks at once.
        """
        augmentation, remaining = self.pairs.augmentation if self.pairs else None, iter(orders)
        while together := [*islice(remaining, self.most_steps_at_a_time)]:
            for batch in self.gathered(np.stack(together), step).to(device):
                yield augmented(augmentation, batch, self.seed, step)
                step += 1

    def from_(
        self, epoch: int, n_done: int, step: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, bool]]:
        """Mini-batches (B, ...) of the epochs from this one on, and whether each ends its epoch.

        The first `n_done` mini-batches of the first epoch are left out; `step` is the number of the
        first step.
        """
        orders = islice(chain.from_iterable(map(self.order, count(epoch))), n_done, None)
        batches = self.mini_batches(orders, step, device)
        for number, batch in enumerate(batches, n_done + 1):
            yield batch, number % self.steps_an_epoch == 0


def augmented(
    augmentation: Augmentation | None, batch: torch.Tensor, seed: int, step: int
) -> torch.Tensor:
    """Augmented pairs (2 B, ...), on their device; unchanged if there is no augmentation.

    The augmentation gets the first inputs of all pairs in one call, and the second inputs in
    another. So even a transform that draws once in a call changes the two inputs of a pair
    differently.
    """
    if augmentation is None:
        return batch
    name, first = shortened(f"augmentation={augmentation!r}"), batch[: len(batch) // 2]
    like = f"a tensor like the one given, {tuple(first.shape)} of {batch.dtype} on {batch.device}"
    draws = own_generators(seed_of(seed, Purpose.AUGMENTATION, step))
    with torch.no_grad(), draws, add_error_context(f"{name} was given {like}"):
        halves = [augmentation(half) for half in batch.chunk(2)]
    for changed in halves:
        if not isinstance(changed, torch.Tensor):
            raise TypeError(f"{name} must return {like}, got {type(changed).__name__}")
        floats = changed.is_floating_point() == batch.is_floating_point()
        if changed.shape != first.shape or changed.device != batch.device or not floats:
            got = f"{tuple(changed.shape)} of {changed.dtype} on {changed.device}"
            raise ValueError(f"{name} must return {like}, got {got}")
    return torch.cat(halves).to(batch.dtype)
