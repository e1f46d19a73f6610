"""Random views of photographs on their device, and a loader of pairs for ``mmd_init_``."""

import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import affine_grid, grid_sample
from torch.utils.data import IterableDataset

# Shares of red, green and blue in brightness, and two colour axes: the YIQ space of television.
_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def as_floats(images: torch.Tensor) -> torch.Tensor:
    """Bytes as values from 0 to 1."""
    return images.float() / 255.0


class RandomView(nn.Module):
    """A random part of each image, mirrored, with other colours, or grey: SimCLR's views.

    Images (n, 3, height, width) have values from 0 to 1, and each gets its own amounts. Where
    ``colour`` is 0 only the part and the mirror image are drawn.

    Parameters
    ----------
    least_area : float
        The smallest part of the image, as a share of its area.
    colour : float
        Largest relative change of brightness and contrast; half of it for saturation. The hue turns
        by up to a quarter of it, as a share of a full turn. One image in five keeps its colours.
    grey : float
        Probability of a grey image.
    """

    to_yiq: torch.Tensor
    from_yiq: torch.Tensor

    def __init__(self, least_area: float = 0.2, colour: float = 0.4, grey: float = 0.2) -> None:
        super().__init__()
        self.least_area, self.colour, self.grey = least_area, colour, grey
        to_yiq = torch.tensor(_TO_YIQ)
        self.register_buffer("to_yiq", to_yiq, persistent=False)
        self.register_buffer("from_yiq", torch.linalg.inv(to_yiq), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self._part(x)
        return self._coloured(x) if self.colour or self.grey else x

    def _part(self, x: torch.Tensor) -> torch.Tensor:
        def uniform(low: float, high: float) -> torch.Tensor:
            return torch.empty(len(x), device=x.device).uniform_(low, high)

        area, ratio = uniform(self.least_area, 1.0), uniform(-1.0, 1.0).mul(math.log(4 / 3)).exp()
        width, height = (area * ratio).sqrt().clamp(max=1.0), (area / ratio).sqrt().clamp(max=1.0)
        maps = x.new_zeros(len(x), 2, 3)
        maps[:, 0, 0] = width * (uniform(0.0, 1.0) < 0.5).float().mul(2.0).sub(1.0)
        maps[:, 1, 1] = height
        maps[:, 0, 2] = uniform(-1.0, 1.0) * (1.0 - width)
        maps[:, 1, 2] = uniform(-1.0, 1.0) * (1.0 - height)
        grid = affine_grid(maps, list(x.shape), align_corners=False)
        return grid_sample(x, grid, padding_mode="reflection", align_corners=False)

    def _coloured(self, x: torch.Tensor) -> torch.Tensor:
        def uniform(largest: float) -> torch.Tensor:
            return torch.empty(len(x), 1, 1, 1, device=x.device).uniform_(-largest, largest)

        def happens(p: float) -> torch.Tensor:
            return (torch.rand(len(x), 1, 1, 1, device=x.device) < p).float()

        def brightness(x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("c,bchw->bhw", self.to_yiq[0], x)[:, None]

        changes = happens(0.8)
        x = (x * (1.0 + changes * uniform(self.colour))).clamp(0.0, 1.0)
        mean = brightness(x).mean(dim=(2, 3), keepdim=True)
        x = ((x - mean) * (1.0 + changes * uniform(self.colour)) + mean).clamp(0.0, 1.0)
        grey = brightness(x)
        x = (x - grey) * (1.0 + changes * uniform(self.colour / 2)) + grey
        x = self._turned(x.clamp(0.0, 1.0), (changes * uniform(self.colour / 4)).flatten())
        return torch.lerp(x, brightness(x).expand_as(x), happens(self.grey))

    def _turned(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Hues turned: a rotation of the two axes of colour, which keeps the brightness."""
        cos, sin = torch.cos(2 * math.pi * turns), torch.sin(2 * math.pi * turns)
        zero, one = torch.zeros_like(cos), torch.ones_like(cos)
        rows = (one, zero, zero, zero, cos, -sin, zero, sin, cos)
        turn = torch.stack(rows, dim=1).view(-1, 3, 3)
        return torch.einsum("bij,bjhw->bihw", self.from_yiq @ turn @ self.to_yiq, x).clamp(0.0, 1.0)


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
