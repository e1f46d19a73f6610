"""Networks that the package lacks: normalized perceptrons, a small ConvNet, a ResNet."""

from collections.abc import Sequence
from itertools import chain, pairwise

import torch
from torch import nn

from sklearn_mmdinit import MLP


class NormalizedPerceptron(nn.Sequential):
    """An MLP of ReLU layers with batch normalization before each of them."""

    def __init__(
        self,
        n_features: int,
        hidden_layer_sizes: Sequence[int],
        n_classes: int = 2,
        init: str = "xavier",
    ) -> None:
        *hidden, last = MLP(n_features, hidden_layer_sizes, n_classes, init=init).linears
        norms = map(nn.BatchNorm1d, hidden_layer_sizes)
        layers = zip(hidden, norms, (nn.ReLU() for _ in hidden), strict=True)
        super().__init__(*chain.from_iterable(layers), last)


class ConvNet(nn.Module):
    """Two convolutions (``width`` and twice as many channels), pooling, two linear layers.

    Images have one channel and a side that is a multiple of 4.
    """

    def __init__(
        self, n_classes: int = 2, width: int = 8, batch_norm: bool = False, side: int = 8
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width) if batch_norm else nn.Identity()
        self.norm2 = nn.BatchNorm2d(2 * width) if batch_norm else nn.Identity()
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(2 * width * (side // 4) ** 2, 4 * width)
        self.fc2 = nn.Linear(4 * width, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.norm1(self.conv1(x)).relu(), 2)
        x = nn.functional.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        x = self.drop(self.fc1(x.flatten(1)).relu())
        return self.fc2(x)


def _convolution(n_in: int, n_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False), nn.BatchNorm2d(n_out)
    )


class Residual(nn.Module):
    """Two convolutions, and their input added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second = _convolution(width, width), _convolution(width, width)
        self.inner = nn.Sequential(first, nn.ReLU(), second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.inner(x)).relu()


class ResNetBody(nn.Sequential):
    """Features (n, 8 width) of images (n, 3, side, side) from 0 to 1, in bfloat16 where it is fast.

    Four stages of ``width`` to 8 ``width`` channels, a convolution and a residual block each.
    """

    def __init__(self, width: int, stride: int = 1) -> None:
        widths = [3, *(width * 2**stage for stage in range(4))]
        stages = [
            nn.Sequential(_convolution(n_in, n_out, 2 if stage else stride), nn.ReLU(),
                          Residual(n_out))
            for stage, (n_in, n_out) in enumerate(pairwise(widths))
        ]  # fmt: skip
        super().__init__(*stages)
        self.n_features = widths[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # About the mean and the standard deviation of photographs.
        x = ((x - 0.47) / 0.25).to(memory_format=torch.channels_last)
        kind = x.device.type
        is_fast = kind == "cuda" or bool(torch.cpu.get_capabilities().get("avx512_bf16"))
        with torch.autocast(kind, torch.bfloat16, enabled=is_fast):
            for stage in self:
                x = stage(x)
        return x.float().mean(dim=(2, 3))
