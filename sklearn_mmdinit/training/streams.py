"""Mini-batches of a stream: an epoch is a pass over a DataLoader, and no row is kept."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from .._base.environment import array_of, seeded_for_user_code
from .._base.random_streams import Purpose, generator_of, seed_of
from .._base.validation import add_error_context, warn_user
from .config import Config
from .minibatches import Augmentation, augmented, augmented_on_device, takes_tensors

# The first mini-batches are read before training, until they have this many rows or values. The
# module is inspected on them.
_FIRST_ROWS, _FIRST_NUMBERS = 2048, 1 << 24
UNKNOWN = sys.maxsize  # rows of a loader without a length

_END = object()  # marks the end of a pass; None may be what a loader gives

# One tensor (B, ...), or two of the same shape: a mini-batch, or two views of it.
Views = tuple[torch.Tensor, ...]


class LoaderEpochs:
    """The epochs of a DataLoader: each is a new pass. All its draws follow from the seed.

    The constructor begins the first pass: it reads the mini-batches that describe the data, and
    keeps them for ``of(0)``.
    """

    def __init__(
        self, loader: DataLoader[Any], name: str, seed: int, *, pairs_wanted: bool = False
    ) -> None:
        self.name, self._pairs_wanted = name, pairs_wanted
        # Rows of the last pass that has ended. Before the first has ended, an estimate from the
        # loader's length.
        self.n_rows = UNKNOWN
        self._loader, self._seed = loader, seed
        self._rest, self._read = self._pass(0), deque[Views]()
        n_rows, n_numbers = 0, 0
        for views in self._rest:
            self._read.append(views)
            n_rows, n_numbers = n_rows + len(views[0]), n_numbers + sum(v.numel() for v in views)
            if n_rows >= _FIRST_ROWS or n_numbers >= _FIRST_NUMBERS:
                break
        if not n_rows:
            hint = ""
            if getattr(loader, "drop_last", False):
                hint = (
                    ": drop_last=True drops a mini-batch of fewer than batch_size="
                    f"{loader.batch_size} examples; pass drop_last=False or a smaller batch_size"
                )
            raise ValueError(f"data={name} cannot be read: it gives no examples{hint}")
        first = self._read[0]
        self.size, self.has_pairs = len(first[0]), len(first) == 2
        if self.n_rows == UNKNOWN:  # the first pass has not ended
            with suppress(TypeError):  # a loader without a length
                self.n_rows = len(loader) * self.size

    def first_rows(self) -> np.ndarray:
        """Rows (n, ...) of the first mini-batches."""
        with self._context():
            return np.concatenate([rows_of(views[0]) for views in self._read])

    def views_are_equal(self) -> bool:
        """Whether the two views of each example of the first mini-batch are equal."""
        first, second = map(rows_of, self._read[0])
        return np.array_equal(first, second)

    def examples_change(self) -> bool:
        """Whether the Dataset gives one of its first examples differently when asked again.

        Without a Dataset that this process can read at 0, 1 and 2, the answer is False.
        """
        if self._loader.num_workers:  # files may have to be opened in a worker
            return False
        seed = seed_of(self._seed, Purpose.LOADER, 0, 0)
        with suppress(Exception), seeded_for_user_code(seed):
            for i in range(3):
                pair = [self._loader.dataset[i] for _ in range(2)]
                first, again = (x[0] if isinstance(x, tuple | list) else x for x in pair)
                if isinstance(first, torch.Tensor) and not torch.equal(first, again):
                    return True
        return False

    def of(self, epoch: int) -> Iterator[Views]:
        """The views of each mini-batch of an epoch; the first epoch can be read only once."""
        while epoch == 0 and self._read:
            yield self._read.popleft()  # its memory can then be freed
        yield from self._rest if epoch == 0 else self._pass(epoch)

    def _context(self) -> AbstractContextManager[None]:
        return add_error_context(f"data={self.name} cannot be read")

    def _pass(self, epoch: int) -> Iterator[Views]:
        generator = getattr(self._loader, "generator", None)
        further = [] if generator is None else [generator]
        batches: Iterator[Any] | None = None
        first: Views | None = None
        n_rows = 0
        for number in count():
            seed = seed_of(self._seed, Purpose.LOADER, epoch, number)
            with self._context(), seeded_for_user_code(seed, further=further):
                batches = iter(self._loader) if batches is None else batches
                if (item := next(batches, _END)) is _END:
                    break
                given = _views_of(item)
                views = given[: 2 if self._pairs_wanted else 1]
                first = views if first is None else first
                _check_alike(views, first)
                _check_finite(views, epoch, number, n_rows)
            if epoch == number == 0:
                _warn_if_not_used(len(given), len(views), self.name)
                if self._pairs_wanted:
                    _warn_if_views_differ(item, self.name)
            n_rows += len(views[0])
            yield views
        self.n_rows = n_rows


def rows_of(examples: torch.Tensor) -> np.ndarray:
    """Examples (n, ...) as an array, floats in float32."""
    examples = examples.float() if examples.is_floating_point() else examples
    return np.asarray(array_of(examples))


def _views_of(item: Any) -> Views:
    """The views in what a loader gives: x, (x, labels), (a, b), ((a, b), labels)."""
    first, *others = item if isinstance(item, tuple | list) and item else [item]
    nested = isinstance(first, tuple | list) and bool(first)
    if nested:
        first, *others = first
    place = "[0][0]" if nested else "" if first is item else "[0]"
    if not isinstance(first, torch.Tensor) or first.ndim == 0:
        raise TypeError(
            "data must give tensors, or tuples whose first item is a tensor, got "
            f"{_described(first, place)}"
        )
    if first.ndim == 1:
        raise ValueError(
            "data must give mini-batches with at least two axes, (n, ...), got a tensor "
            f"{tuple(first.shape)}. If it holds labels, give the examples first: (image, label). "
            "If it is one example, give several as one tensor, by the DataLoader's batch_size"
        )
    views = [first.detach()]
    for other in others:
        is_view = isinstance(other, torch.Tensor) and other.shape == first.shape
        if is_view and other.dtype == first.dtype:
            views.append(other.detach())
            continue
        if nested and len(views) == 1:
            got = f"{tuple(first.shape)} and {tuple(getattr(other, 'shape', ()))}"
            raise ValueError(f"two views of an example must have one shape and dtype, got {got}")
        break
    return tuple(views)


def _described(item: Any, place: str) -> str:
    """What `item`, at a place in what a loader gives, is instead of examples, and what to write."""
    if isinstance(item, torch.Tensor):
        return "a number"
    if item is None:
        return "None; let collate_fn return a tensor, and leave out examples in the Dataset"
    if isinstance(item, Mapping) and item:
        tensors = (k for k, v in item.items() if isinstance(v, torch.Tensor) and v.ndim > 1)
        key = next(tensors, next(iter(item)))
        return (
            f"a {type(item).__name__} with the keys {list(item)}; let collate_fn take one out: "
            "DataLoader(dataset, 256, shuffle=True, "
            f"collate_fn=lambda items: torch.utils.data.default_collate(items){place}[{key!r}])"
        )
    return type(item).__name__


def _warn_if_not_used(n_given: int, n_used: int, name: str) -> None:
    """Warn if a loader gives more views than are used."""
    if n_given > n_used:
        used, hint = "one is", "pass coherence='auto' to use two, or leave the others out"
        if n_used == 2:
            used, hint = "two are", "leave the others out, or let the data draw (a, b) from them"
        warn_user(
            f"data={name} gives {n_given} views of each example, tensors of one shape and dtype, "
            f"and only the first {used} used; {hint}"
        )


def _warn_if_views_differ(item: Any, name: str) -> None:
    """Warn if the labels in (x, labels) may be a view of another size or dtype."""
    match item:
        case [torch.Tensor() as first, torch.Tensor() as second, *_]:
            floats = first.ndim == second.ndim >= 3 and second.is_floating_point()
        case _:
            return
    if floats and (first.shape, first.dtype) != (second.shape, second.dtype):
        there, here = (f"{tuple(x.shape)} of {x.dtype}" for x in (first, second))
        warn_user(
            f"data={name} gives tensors {there} and {here}; the second is taken for labels, "
            "because two views of an example must have one shape and dtype; resize or convert the "
            "second, or leave it out if it is no view"
        )


def _check_finite(views: Views, epoch: int, number: int, n_before: int) -> None:
    """Raise a ValueError that names the first example with values not finite in float32."""
    for view in views:
        # Reading a number from a GPU would wait for its steps. There a loss of NaN ends training.
        if not (view.is_floating_point() and view.device.type == "cpu" and view.numel()):
            continue
        rows = rows_of(view).reshape(len(view), -1)
        if not np.isfinite([rows.min(), rows.max()]).all():  # faster than isfinite of all
            place = int(np.isfinite(rows).all(axis=1).argmin())
            raise ValueError(
                f"epoch {epoch + 1} gives NaN, infinity or a number too large for float32 in "
                f"mini-batch {number}, example {place}, which is example {n_before + place} of the "
                "epoch; these count from 0. Mend or leave out such examples in the Dataset"
            )


def _check_alike(views: Views, first: Views) -> None:
    """Raise a ValueError unless a mini-batch has examples like those of the first one."""
    if (len(views), views[0].shape[1:]) != (len(first), first[0].shape[1:]):
        there, here = (
            f"{'one view' if len(v) == 1 else 'two views'} of shape {tuple(v[0].shape[1:])}"
            for v in (first, views)
        )
        raise ValueError(
            f"all examples must have the same shape and number of views: the first mini-batch has "
            f"{there}, and another has {here}; resize or pad them"
        )


@dataclass
class StreamBatches:
    """Mini-batches of equal size from epochs over a loader; incomplete ones are left out."""

    epochs: LoaderEpochs
    config: Config
    integers: bool  # whether the module takes integers
    seed: int  # of the augmentation
    augmentation: Augmentation | None
    # Steps of an epoch. It begins with the value in the training's state. If that is 0, it is
    # estimated from the loader's length. Each pass corrects it.
    steps_an_epoch: float

    def __post_init__(self) -> None:
        self.size = self.config.rows_a_step
        if not self.steps_an_epoch:
            known = self.epochs.n_rows
            self.steps_an_epoch = float("inf") if known == UNKNOWN else max(known // self.size, 1)

    def from_(
        self, epoch: int, n_done: int, step: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, bool]]:
        """Mini-batches (B, ...) of the epochs from this one on, and whether each ends its epoch.

        The first `n_done` mini-batches of the first epoch are left out; `step` is the number of the
        first step. A mini-batch of pairs has all first views, then all second views.
        """
        for number in count(epoch):
            index = -1
            for index, (views, is_last) in enumerate(_with_last(self._split(number))):
                self.steps_an_epoch = index + 1 if is_last else max(self.steps_an_epoch, index + 2)
                if index >= n_done:
                    yield self._examples(views, step, device), is_last
                    step += 1
            if index < n_done:
                raise ValueError(
                    f"epoch {number + 1} of data={self.epochs.name} has only {index + 1} full "
                    f"mini-batches of {self.size} examples, and training needs at least "
                    f"{n_done + 1} there. An epoch is a pass over the data, and an iterator can be "
                    "passed over only once. Let __iter__ of the IterableDataset return a new "
                    "iterator each time, as a generator function does, or pass max_iter=1"
                )
            n_done = 0

    def _split(self, number: int) -> Iterator[Views]:
        for views in self.epochs.of(number):
            for start in range(0, len(views[0]) - self.size + 1, self.size):
                yield tuple(view[start : start + self.size] for view in views)

    def _examples(self, views: Any, step: int, device: torch.device) -> torch.Tensor:
        """A mini-batch on the device, augmented, in the type that the module takes."""
        augmentation = self.augmentation
        # A pair may be one example twice: that goes to the device once.
        n_copies = 2 if self.config.coherence is not None and len(views) == 1 else 1
        if augmentation is not None and not takes_tensors(augmentation):
            rows = array_of(torch.cat([*views] * n_copies))
            rng = generator_of(self.seed, Purpose.AUGMENTATION, step)
            changed = augmented(augmentation, rows, rng)
            views, augmentation, n_copies = [torch.from_numpy(changed)], None, 1
        pinned = device.type == "cuda"
        parts = [view.to(device, non_blocking=pinned) for view in views]
        batch = torch.cat(parts * n_copies)
        stay_integers = self.integers and not batch.is_floating_point()
        batch = batch.to(torch.int64 if stay_integers else torch.float32)
        if augmentation is None:
            return batch
        return augmented_on_device(augmentation, batch, self.seed, step)


def _with_last(items: Iterator[Views]) -> Iterator[tuple[Views, bool]]:
    """Each item, with whether it is the last one."""
    for item, after in pairwise(chain(items, [()])):
        yield item, not after
