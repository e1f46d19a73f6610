"""A loader of pairs of photographs for ``mmd_init_``."""

from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes as values from 0 to 1."""
    return images.float() / 255.0


class Pairs(IterableDataset):  # type: ignore[type-arg]
    """Mini-batches of images (n, ...) of bytes twice, as values from 0 to 1, to be augmented.

    Each pass is in another order.
    """

    def __init__(self, images: torch.Tensor, size: int) -> None:
        self.images, self.size = images, size

    def __len__(self) -> int:
        return len(self.images) // self.size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for rows in torch.randperm(len(self.images))[: len(self) * self.size].view(-1, self.size):
            images = as_floats(self.images[rows.to(self.images.device)])
            yield images, images
