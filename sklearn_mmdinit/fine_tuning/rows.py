"""Rows of a net, in batches that are slices of them: no DataLoader, no collation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch.utils.data import DataLoader, Dataset

# What stands in place of X where rows have weights.
_INPUTS, _WEIGHTS = "X", "sample_weight"


def inputs_and_weights(X: Any) -> tuple[Any, Any]:
    """The inputs of a batch and the weights of its rows; None where they have none."""
    if isinstance(X, Mapping) and X.keys() == {_INPUTS, _WEIGHTS}:
        return X[_INPUTS], X[_WEIGHTS]
    return X, None


class Rows(Dataset[tuple[Any, torch.Tensor]]):
    """Rows X (n, ...), dense or CSR, classes y, weights; items (X, y), X a dict where weighted."""

    def __init__(
        self,
        X: Any,
        y: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        valid: Rows | None = None,
    ) -> None:
        n_rows = X.shape[0]
        if not issparse(X):
            # Arrays reach worker processes as read-only memory maps, which torch warns about.
            X = np.ascontiguousarray(X)
            X = torch.from_numpy(X if X.flags.writeable else X.copy())
        self.X = X
        self.y = torch.from_numpy(np.zeros(n_rows, int) if y is None else np.array(y, np.int64))
        self.weights = None
        if weights is not None:
            # Of mean 1: their mean over rows is the weighted mean, and float32 holds them.
            scaled = weights / weights.mean()
            self.weights = torch.tensor(scaled, dtype=torch.float32, device="cpu")
        self.valid = valid

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: Any) -> tuple[Any, torch.Tensor]:
        X: Any = self.X[index] if isinstance(self.X, torch.Tensor) else _dense(self.X, index)
        if self.weights is not None:
            X = {_INPUTS: X, _WEIGHTS: self.weights[index]}
        return X, self.y[index]


def _dense(X: Any, index: Any) -> torch.Tensor:
    """Sparse rows as a dense tensor; one row without the axis of rows, as of any tensor."""
    if isinstance(index, int | np.integer):
        return _dense(X, [index])[0]
    return torch.from_numpy(X[np.asarray(index) if torch.is_tensor(index) else index].toarray())


class Orders:
    """Orders of rows, one after the other, wherever they are continued: they can be pickled."""

    def __init__(self, seed: int) -> None:
        # On the CPU, whatever PyTorch's default device is.
        self._state = torch.Generator("cpu").manual_seed(seed).get_state()

    def next(self, n_rows: int) -> torch.Tensor:
        """A permutation of ``range(n_rows)``, int64."""
        generator = torch.Generator("cpu")
        generator.set_state(self._state)
        order = torch.randperm(n_rows, generator=generator, device="cpu")
        self._state = generator.get_state()
        return order


class _Batches:
    """Iterate over slices of the tensors of Rows, in an order drawn anew each time."""

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        join_last: bool = False,
        orders: Orders | None = None,
    ) -> None:
        self.rows = rows
        self.orders = (orders or Orders(0)) if shuffle else None
        n_rows = len(rows)
        starts = list(range(0, n_rows, batch_size))
        left_over = n_rows % batch_size
        if len(starts) > 1 and drop_last and left_over:
            n_rows = starts.pop()
        elif len(starts) > 1 and join_last and left_over == 1:
            # Batch norm cannot train on a batch of one row: it joins the batch before.
            starts.pop()
        self.bounds = list(pairwise([*starts, n_rows]))

    def __len__(self) -> int:
        return len(self.bounds)

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor]]:
        order = None if self.orders is None else self.orders.next(len(self.rows))
        for start, stop in self.bounds:
            yield self.rows[slice(start, stop) if order is None else order[start:stop]]


def batches(dataset: Any, batch_size: int, **options: Any) -> Any:
    """Batches of Rows; of any other dataset a DataLoader."""
    if isinstance(dataset, Rows):
        return _Batches(dataset, batch_size, **options)
    options = {key: options[key] for key in options.keys() & {"shuffle", "drop_last"}}
    return DataLoader(dataset, batch_size=batch_size, **options)
