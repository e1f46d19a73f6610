"""Mini-batches of a stream: an epoch is a pass over a DataLoader, and no row is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, pairwise
from operator import length_hint
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader

from .._base.environment import array_of, own_generators
from .._base.random_streams import Purpose, seed_of
from .._base.validation import add_error_context
from .minibatches import Augmentation, augmented

# The first mini-batches are read before training, until they have this many rows or values: the
# module and the scale of the data are inspected on them.
_FIRST_ROWS, _FIRST_NUMBERS = 2048, 1 << 24

_END = object()  # marks the end of a pass; None may be what a loader gives

Views = tuple[torch.Tensor, ...]  # one tensor (B, ...), or two of the same shape


class LoaderEpochs:
    """The epochs of a DataLoader: each is a new pass. All its draws follow from the seed.

    The constructor begins the first pass: it reads the mini-batches that describe the data, and
    keeps them for ``of(0)``.
    """

    def __init__(self, loader: DataLoader[Any], name: str, seed: int, n_views: int) -> None:
        self.name, self._loader, self._seed, self.n_views = name, loader, seed, n_views
        self._n_batches = length_hint(loader, -1)  # -1: it has no length
        # Rows of the last pass that has ended. Before the first has ended, an estimate by the
        # loader's length, or None.
        self.n_rows: int | None = None
        self._rest, self._read = self._pass(0), deque[Views]()
        n_rows, n_numbers = 0, 0
        for views in self._rest:
            self._read.append(views)
            n_rows, n_numbers = n_rows + len(views[0]), n_numbers + sum(v.numel() for v in views)
            if n_rows >= _FIRST_ROWS or n_numbers >= _FIRST_NUMBERS:
                break
        if not n_rows:
            hint = "with drop_last=True a mini-batch of fewer than batch_size examples is dropped"
            raise ValueError(f"data={name} cannot be read: it gives no examples; {hint}")
        self.size = max(len(views[0]) for views in self._read)  # collate_fn may leave out examples
        if self.n_rows is None and self._n_batches >= 0:  # the first pass has not ended
            self.n_rows = self._n_batches * self.size

    def first_rows(self) -> np.ndarray:
        """Rows (n, ...) of the first mini-batches."""
        return np.concatenate([rows_of(views[0]) for views in self._read])

    def of(self, epoch: int) -> Iterator[Views]:
        """The views of each mini-batch of an epoch; the first epoch can be read only once."""
        if epoch > 0:
            return self._pass(epoch)
        read = (self._read.popleft() for _ in range(len(self._read)))  # frees their memory
        return chain(read, self._rest)

    def _pass(self, epoch: int) -> Iterator[Views]:
        generator = getattr(self._loader, "generator", None)
        further = [] if generator is None else [generator]
        batches: Iterator[Any] | None = None
        n_rows = 0
        for number in count() if self._n_batches < 0 else range(self._n_batches):
            seed = seed_of(self._seed, Purpose.LOADER, epoch, number)
            where = f"data={self.name} cannot be read, in mini-batch {number} of epoch {epoch + 1}"
            with add_error_context(where), own_generators(seed, further):
                batches = iter(self._loader) if batches is None else batches
                if (item := next(batches, _END)) is _END:
                    break
                views = _views_in(item, self.n_views)
            n_rows += len(views[0])
            yield views
        self.n_rows = n_rows


def rows_of(examples: torch.Tensor) -> np.ndarray:
    """Examples (n, ...) as an array, floats in float32."""
    examples = examples.float() if examples.is_floating_point() else examples
    return np.asarray(array_of(examples))


def _views_in(item: Any, n_views: int) -> Views:
    """The view in (x, ...), or the two in (a, b, ...) or ((a, b), ...), from a loader."""
    if isinstance(item, tuple | list) and item and isinstance(item[0], tuple | list):
        item = item[0]
    views = tuple(item[:n_views]) if isinstance(item, tuple | list) else (item,)
    are_examples = all(isinstance(view, torch.Tensor) and view.ndim > 1 for view in views)
    if len(views) < n_views or not are_examples or len({(v.shape, v.dtype) for v in views}) > 1:
        valid = "x or (x, ...), with x a tensor (B, ...) of examples"
        if n_views == 2:
            valid = "(a, b, ...) or ((a, b), ...), tensors a and b (B, ...) of one shape and dtype"
        got = tree_map(
            lambda v: f"{v.dtype} {[*v.shape]}" if torch.is_tensor(v) else type(v).__name__, item
        )
        raise TypeError(
            f"data must give {valid}, got {got}. Change what the Dataset or the "
            "DataLoader's collate_fn returns: for examples that are dicts, for instance, "
            "collate_fn=lambda items: default_collate(items)['image']"
        )
    return tuple(view.detach() for view in views)


@dataclass
class StreamBatches:
    """Mini-batches of equal size from epochs over a loader; incomplete ones are left out."""

    epochs: LoaderEpochs
    size: int  # examples of a mini-batch
    integers: bool  # whether the module takes integers
    seed: int  # of the augmentation
    are_pairs: bool  # whether a mini-batch has two inputs for each example
    augmentation: Augmentation | None = None

    @property
    def steps_an_epoch(self) -> int:
        """Steps of an epoch, by the rows of a pass; 0 if they are not known."""
        n_rows = self.epochs.n_rows
        return 0 if n_rows is None else max(n_rows // self.size, 1)

    def from_(
        self, epoch: int, n_done: int, step: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, bool]]:
        """Mini-batches (B, ...) of the epochs from this one on, and whether each ends its epoch.

        The first `n_done` mini-batches of the first epoch are left out; `step` is the number of the
        first step. A mini-batch of pairs has all first views, then all second views.
        """
        for number in count(epoch):
            index = -1
            for index, (views, after) in enumerate(pairwise(chain(self._split(number), [None]))):
                if index >= n_done:
                    yield self._examples(views, step, device), after is None
                    step += 1
            if index < n_done:
                raise ValueError(
                    f"data={self.epochs.name} ran out of examples: epoch {number + 1} gives only "
                    f"{index + 1} full mini-batches of {self.size} examples, and at least "
                    f"{n_done + 1} are needed; let __iter__ of an IterableDataset return a new "
                    "iterator each time, as a generator function does, or pass max_iter=1"
                )
            n_done = 0

    def _split(self, number: int) -> Iterator[Views]:
        for views in self.epochs.of(number):
            for start in range(0, len(views[0]) - self.size + 1, self.size):
                yield tuple(view[start : start + self.size] for view in views)

    def _examples(self, views: Any, step: int, device: torch.device) -> torch.Tensor:
        """A mini-batch on the device, augmented, in the type that the module takes."""
        parts = [view.to(device, non_blocking=device.type == "cuda") for view in views]
        if self.are_pairs and len(parts) == 1:
            parts *= 2  # a pair may be one example twice: it goes to the device once
        batch = torch.cat(parts)
        stay_integers = self.integers and not batch.is_floating_point()
        batch = batch.to(torch.int64 if stay_integers else torch.float32)
        return augmented(self.augmentation, batch, self.seed, step)
