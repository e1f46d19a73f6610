"""The small convolutional network, for images of one channel whose side is a multiple of 4."""

import torch
from torch import nn


class ConvNet(nn.Module):
    """Two convolutions (``width`` and twice as many channels), pooling, two linear layers."""

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
        logits: torch.Tensor = self.fc2(x)
        return logits
