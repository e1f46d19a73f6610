"""Which rows a step looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._compute import augmentation_generator, walk_generator
from .._graph import Walk

__all__ = ["Batches", "RowBatches", "WalkBatches", "check_augmentation", "steps_at_a_time"]

Augmentation = Callable[[np.ndarray, np.random.Generator], Any]

# Numbers of the mini-batches that are gathered at a time: 64 MiB in float32.
_NUMBERS_AT_A_TIME = 1 << 24


def steps_at_a_time(n_rows: int, n_features: int) -> int:
    """Steps whose mini-batches of so many rows take little memory together."""
    return max(_NUMBERS_AT_A_TIME // (n_rows * n_features), 1)


class Batches(Protocol):
    """How the order of a pass becomes the mini-batches of its steps."""

    @property
    def size(self) -> int:
        """Rows of the order a step."""

    @property
    def n_rows(self) -> int:
        """Rows of a mini-batch."""

    def n_steps(self, n_features: int) -> int | None:
        """Steps whose mini-batches may be gathered at a time; None: any number."""

    def rows(self, order: np.ndarray, first_step: int) -> np.ndarray:
        """Numbers (n_steps, n_rows) of the rows of each mini-batch.

        Parameters
        ----------
        order : ndarray of int of shape (n_steps * size,)
            The next rows of a pass.
        first_step : int
            Number of the first step: draws follow from it.
        """

    def gathered(self, X: np.ndarray, order: np.ndarray, first_step: int) -> np.ndarray:
        """The mini-batches (n_steps, n_rows, ...) of those rows of X (n, ...)."""


@dataclass(frozen=True)
class RowBatches:
    """Mini-batches of the rows themselves, each row once a pass.

    Parameters
    ----------
    size : int
        Rows a step.
    """

    size: int

    @property
    def n_rows(self) -> int:
        """Rows of a mini-batch."""
        return self.size

    def n_steps(self, n_features: int) -> int | None:
        """Any number: windows are short."""
        return None

    def rows(self, order: np.ndarray, first_step: int) -> np.ndarray:
        """Numbers (n_steps, size) of the rows of each mini-batch."""
        return order.reshape(-1, self.size)

    def gathered(self, X: np.ndarray, order: np.ndarray, first_step: int) -> np.ndarray:
        """The mini-batches (n_steps, size, ...)."""
        return X[self.rows(order, first_step)]


@dataclass(frozen=True)
class WalkBatches:
    """Mini-batches of the starts of random walks, each row once a pass, and then their ends.

    Parameters
    ----------
    size : int
        Walks a step.
    walk : Walk
        The graph they go along.
    mean_length : float
        Mean number of edges of a walk.
    seed : int
        The walks of a step, and changes of its rows, follow from it and the step's number.
    augmentation : callable or None, default=None
        ``augmentation(rows, rng)``: the rows of a step, changed.
    """

    size: int
    walk: Walk
    mean_length: float
    seed: int
    augmentation: Augmentation | None = None

    @property
    def n_rows(self) -> int:
        """Rows of a mini-batch."""
        return 2 * self.size

    def n_steps(self, n_features: int) -> int | None:
        """As many as take little memory."""
        return steps_at_a_time(self.n_rows, n_features)

    def rows(self, order: np.ndarray, first_step: int) -> np.ndarray:
        """Numbers (n_steps, 2 size) of the rows of each mini-batch, the starts first."""
        starts = order.reshape(-1, self.size)
        ends = [
            self.walk.ends(own, self.mean_length, walk_generator(self.seed, first_step + offset))
            for offset, own in enumerate(starts)
        ]
        return np.concatenate([starts, np.stack(ends)], axis=1)

    def gathered(self, X: np.ndarray, order: np.ndarray, first_step: int) -> np.ndarray:
        """The mini-batches (n_steps, 2 size, ...), changed by the augmentation if there is one.

        Raises
        ------
        ValueError
            If the augmentation does not give back as many rows of the same kind, or one with
            NaN or infinity.
        """
        mini_batches = X[self.rows(order, first_step)]
        if self.augmentation is None:
            return mini_batches
        for offset, rows in enumerate(mini_batches):
            rng = augmentation_generator(self.seed, first_step + offset)
            mini_batches[offset] = _changed(self.augmentation, rows, rng)
        return mini_batches


def check_augmentation(augmentation: Augmentation, X: np.ndarray) -> None:
    """Raise a ValueError if it does not give back rows like X (n, ...), all finite."""
    _changed(augmentation, X.copy(), augmentation_generator(0, 0))


def _changed(augmentation: Augmentation, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows after the augmentation, checked."""
    changed = np.asarray(augmentation(rows, rng))
    if changed.shape != rows.shape or changed.dtype.kind != rows.dtype.kind:
        raise ValueError(
            f"augmentation={augmentation!r} must return rows like those it is given, of shape "
            f"{rows.shape} and type {rows.dtype}; got shape {changed.shape}, {changed.dtype}"
        )
    with np.errstate(over="ignore"):  # to infinity, as where rows become a mini-batch
        kept = changed.astype(rows.dtype, copy=False).astype(np.float32, copy=False)
    if not np.isfinite(kept).all():
        raise ValueError(
            f"augmentation={augmentation!r} returned NaN or infinity, or a value too large for "
            "float32"
        )
    return changed
