"""A loader of pairs of photographs for ``mmd_init_``."""

from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes as values from 0 to 1."""
    return images.float() / 255.0


class Pairs(IterableDataset):  # type: ignore[type-arg]
    """Mini-batches of positive pairs of images (n, ...) of bytes, as values from 0 to 1.

    A pair is an image twice, to be augmented on the device. With ``neighbours`` (n, k) the second
    one is for half of the pairs one of the image's neighbours. Each pass is in another order.
    """

    def __init__(
        self, images: torch.Tensor, size: int, neighbours: torch.Tensor | None = None
    ) -> None:
        self.images, self.size, self.neighbours = images, size, neighbours

    def __len__(self) -> int:
        return len(self.images) // self.size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        device = self.images.device
        for rows in torch.randperm(len(self.images))[: len(self) * self.size].view(-1, self.size):
            first = rows.to(device)
            second = first
            if self.neighbours is not None:
                column = torch.randint(self.neighbours.shape[1], (len(rows),)).to(device)
                is_other = (torch.rand(len(rows)) < 0.5).to(device)
                second = torch.where(is_other, self.neighbours[first, column], first)
            yield as_floats(self.images[first]), as_floats(self.images[second])
