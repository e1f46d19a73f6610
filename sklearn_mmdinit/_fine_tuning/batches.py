"""Labelled rows as tensors, and batches that are slices of them: no DataLoader, no collation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

__all__ = ["Rows", "batches"]


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Rows and their classes as tensors, and the rows kept for validation beside them.

    Parameters
    ----------
    X : ndarray of float32 of shape (n_samples, n_features)
        Inputs. Their memory is used as it is where it may be written to.
    y : ndarray of int of shape (n_samples,), optional
        Class of each row, counted from 0; all 0 by default.
    valid : Rows, optional
        Rows for validation.
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray | None = None, valid: Rows | None = None
    ) -> None:
        # Arrays reach worker processes as read-only memory maps, which torch warns about.
        X = np.ascontiguousarray(X)
        self.X = torch.from_numpy(X if X.flags.writeable else X.copy())
        self.y = torch.from_numpy(np.zeros(len(X), int) if y is None else np.array(y, np.int64))
        self.valid = valid

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.X[index], self.y[index]


class _Batches:
    """Iterate over slices of the tensors of Rows, in an order drawn anew each time."""

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        join_last: bool = False,
        seed: int = 0,
    ) -> None:
        self.rows = rows
        self.shuffle = shuffle
        self.generator = torch.Generator().manual_seed(seed)
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

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(self.rows), generator=self.generator) if self.shuffle else None
        for start, stop in self.bounds:
            yield self.rows[slice(start, stop) if order is None else order[start:stop]]


def batches(dataset: Any, batch_size: int, **options: Any) -> Any:
    """Batches of Rows; of any other dataset (``net_.predict`` on an array), a DataLoader."""
    if isinstance(dataset, Rows):
        return _Batches(dataset, batch_size, **options)
    options = {key: options[key] for key in options.keys() & {"shuffle", "drop_last"}}
    return DataLoader(dataset, batch_size=batch_size, **options)
