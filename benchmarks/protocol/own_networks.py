"""Small networks as users bring them, for grey images of ten classes: do not tune them."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import nn

from protocol.networks import Residual
from sklearn_mmdinit import Coherence, RandomAffine, linear_probe_

LEARNED, BY_LOOP = "learned weights", "learned weights, by the guide's loop"
FRESH: dict[str, dict[str, Any]] = {
    "fresh weights by default": {},
    "fresh weights, 300 epochs on all labels": {"max_iter": 300, "validation_split": None},
}
"""Parameters of the networks from fresh weights; by default a sixth of the labels validates."""
IMAGES = "few images"  # the task that has no network of its own
AXIS = torch.arange(8.0) / 4 - 1


@dataclass(eq=False, repr=False)
class GuidesLoop(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A module in the loop of the guide: linear probing, then 100 steps of Adam."""

    module: nn.Module
    random_state: int = 0

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        few, labels = torch.from_numpy(X), torch.from_numpy(y)
        self.net_ = deepcopy(self.module)
        linear_probe_(self.net_, few, labels)
        optimizer = torch.optim.Adam(self.net_.parameters(), lr=1e-4)
        for _ in range(100):
            loss: Any = nn.functional.cross_entropy(self.net_(few), labels)
            optimizer.zero_grad(), loss.backward(), optimizer.step()
        return self

    @torch.no_grad()
    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.net_.eval()(torch.from_numpy(X)).argmax(dim=1).numpy()


class MeanOverPositions(nn.Module):
    """Features (n, width) of (n, positions, width)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=1)


class Patches(nn.Module):
    """Sixteen square patches, each by a linear layer, and a parameter for its place."""

    def __init__(self, width: int, side: int = 2, padding: int = 0) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, side, stride=side, padding=padding)
        self.places = nn.Parameter(0.02 * torch.randn(16, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.embed(x).flatten(2).mT + self.places


class WithPlaces(nn.Module):
    """Pixels or rows of an image as a set, each with its place (n_places, 1 or 2)."""

    places: torch.Tensor

    def __init__(self, places: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("places", places)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(len(x), len(self.places), -1)
        return torch.cat([parts, self.places.expand(len(x), -1, -1)], dim=2)


class UNet(nn.Module):
    """One step down, one step up, and a skip connection between them."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, padding=1)
        self.bottom = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 8, 3, padding=1)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.down(x).relu()
        coarse = self.bottom(nn.functional.max_pool2d(fine, 2)).relu()
        x = self.out(torch.cat([fine, self.up(coarse)], dim=1)).relu()
        return self.head(x.flatten(1))


class RowsGRU(nn.Module):
    """A GRU that reads an image row by row."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.gru = nn.GRU(8, width, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(x[:, 0])[0][:, -1])


def _conv(n_in: int, n_out: int) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, 3, padding=1)


def _residual(pool: nn.Module, n_positions: int) -> nn.Sequential:
    blocks = (_conv(1, 24), nn.ReLU(), Residual(24), Residual(24))
    return nn.Sequential(*blocks, pool, nn.Flatten(), nn.Linear(24 * n_positions, 10))


def _attention() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)


def _transformer(patches: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        *(patches, _attention(), _attention(), nn.LayerNorm(32)),
        *(MeanOverPositions(), nn.Linear(32, 10)),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "two convolutions": lambda: nn.Sequential(
        *(_conv(1, 16), nn.ReLU(), _conv(16, 32), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)),
    ),
    "two convolutions, batch normalization, mean over pixels": lambda: nn.Sequential(
        *(_conv(1, 32), nn.BatchNorm2d(32), nn.ReLU()),
        *(_conv(32, 64), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    ),
    "depthwise convolution": lambda: nn.Sequential(
        *(_conv(1, 32), nn.GELU(), nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.GELU()),
        *(nn.Conv2d(32, 32, 1), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)),
    ),
    "ResNet": lambda: _residual(nn.MaxPool2d(2), 16),
    "ResNet, mean over pixels": lambda: _residual(nn.AdaptiveAvgPool2d(1), 1),
    "transformer, mean over patches": lambda: _transformer(Patches(32)),
    "set of pixels, mean over them": lambda: nn.Sequential(
        *(WithPlaces(torch.cartesian_prod(AXIS, AXIS)), nn.Linear(3, 64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.ReLU(), MeanOverPositions()),
        *(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    ),
    "set of rows, mean over them": lambda: nn.Sequential(
        *(WithPlaces(AXIS[:, None]), nn.Linear(9, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU()),
        *(MeanOverPositions(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 10)),
    ),
    "U-Net": UNet,
    "GRU over rows": RowsGRU,
    "perceptron, layer normalization": lambda: nn.Sequential(
        *(nn.Flatten(), nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU()),
        *(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10)),
    ),
}

_LARGER: dict[str, Callable[[], nn.Module]] = {
    "convolutions, batch normalization": lambda: nn.Sequential(
        *(_conv(1, 16), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(_conv(16, 32), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(288, 10)),
    ),
    "ResNet": lambda: nn.Sequential(
        *(_conv(1, 24), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        *(Residual(24), Residual(24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)),
    ),
    "transformer": lambda: _transformer(Patches(32, side=4, padding=1)),
}
_PAIRS = {
    "nearest neighbours": Coherence(),
    "two views": Coherence(n_neighbors=0, augmentation=RandomAffine()),
}
HALVED = {
    f"{name}, {pairs}": (make, coherence)
    for name, make in _LARGER.items()
    for pairs, coherence in _PAIRS.items()
}
