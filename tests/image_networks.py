"""Networks for images of one channel, as users write them: what ``module=`` is tested on.

Each takes images of shape (n, 1, side, side), the side a multiple of 4 or of a patch, and returns
logits (n, n_classes).
"""

import torch
from torch import nn

from protocol.networks import ConvNet


class ResidualNet(nn.Module):
    """Residual blocks of two convolutions with batch normalization, and a mean over pixels."""

    def __init__(self, n_classes=2, width=8, n_blocks=2):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
            )
            for _ in range(n_blocks)
        )
        self.head = nn.Linear(width, n_classes)

    def forward(self, x):
        x = self.norm(self.stem(x)).relu_()
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(x.mean((2, 3)))


class _Attention(nn.Module):
    """Self-attention of two heads from linear layers."""

    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, 2, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(n, tokens, width))


class _TorchAttention(nn.Module):
    """The same by PyTorch's own layer, which keeps its weights to itself."""

    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class PatchTransformer(nn.Module):
    """A transformer on patches, with normalization before each part, and a mean over patches.

    With ``multihead`` by ``nn.MultiheadAttention`` in place of attention from linear layers.
    """

    def __init__(self, n_classes=2, width=16, n_layers=2, patch=4, side=8, multihead=False):
        super().__init__()
        n_patches = (side // patch) ** 2
        attention = _TorchAttention if multihead else _Attention
        self.embed = nn.Conv2d(1, width, patch, stride=patch)
        self.place = nn.Embedding(n_patches, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "attention": attention(width),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 2 * width),
                    "down": nn.Linear(2 * width, width),
                }
            )
            for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).mT
        places = torch.arange(x.shape[1], device=x.device)
        x = x + self.place(places.expand(x.shape[0], -1))
        for block in self.blocks:
            x = x + block["attention"](block["norm1"](x))
            x = x + block["down"](nn.functional.gelu(block["up"](block["norm2"](x))))
        return self.head(self.norm(x).mean(1))


def flat_perceptron(n_classes=2, width=32, batch_norm=False):
    """A perceptron of two hidden layers on flattened images, as an ``nn.Sequential``."""
    parts = [nn.Flatten()]
    n_in = 64
    for _ in range(2):
        parts += [nn.Linear(n_in, width)]
        parts += [nn.BatchNorm1d(width)] if batch_norm else []
        parts += [nn.ReLU()]
        n_in = width
    return nn.Sequential(*parts, nn.Linear(n_in, n_classes))


# Name -> what makes the network for a number of classes.
MODULES = {
    "perceptron": flat_perceptron,
    "perceptron+bn": lambda n_classes: flat_perceptron(n_classes, batch_norm=True),
    "convnet": ConvNet,
    "convnet+bn": lambda n_classes: ConvNet(n_classes, batch_norm=True),
    "residual": ResidualNet,
    "transformer": PatchTransformer,
    "transformer+multihead": lambda n_classes: PatchTransformer(n_classes, multihead=True),
}
