"""Small modules of every kind that can be perturbed, each with a mini-batch that it takes."""

import copy
import math
import warnings

import numpy as np
import torch
from torch import nn

from helpers import mlp, normalized_mlp, seeded
from protocol.networks import ConvNet
from sklearn_mmdinit.networks.info import inspect_module
from sklearn_mmdinit.networks.passes import pretraining_mode_

SCALE = math.sqrt(0.5)


def images(n=4, side=8, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 1, side, side)).astype(np.float32)


def rows(n=4, width=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def tokens(n=4, length=5, words=7, seed=0):
    return np.random.default_rng(seed).integers(words, size=(n, length))


def perceptron(*between, n_in=6, n_out=3):
    """Two linear layers and what is between them."""
    return nn.Sequential(nn.Linear(n_in, 5), *between, nn.Linear(5, n_out))


def twice():
    """One layer called twice in a pass."""
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), nn.Linear(6, 3))


def tied():
    """Two layers with the same weights."""
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    module[2].weight = module[0].weight
    return module


class Words(nn.Module):
    """An embedding with a row for padding, and a layer that sees every token."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 5, padding_idx=0)
        self.mix, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.mix(self.table(ids)).tanh().mean(1))


class Convs(nn.Module):
    """Convolutions with every option, in one dimension."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2)
        self.b = nn.Conv1d(4, 6, 3, groups=2, padding="same", bias=False)
        self.c = nn.ConvTranspose1d(6, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.a(x.view(len(x), 2, -1)).tanh()
        return self.head(self.c(self.b(x).tanh()).tanh().mean(2))


class Halved(nn.Module):
    """Halves its input first, in place or not."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place = in_place
        self.layer, self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        half = x.mul_(0.5) if self.in_place else 0.5 * x
        return self.head(self.mix(self.layer(half)).relu_())


class Bare(nn.Module):
    """Parameters that belong to no layer, in every number of dimensions."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6) / 3)
        self.shift = nn.Parameter(torch.zeros(4))
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head((self.factor * (x @ self.weight.mT) + self.shift).tanh())


class Recurrent(nn.Module):
    """A recurrent layer, which is beyond vmap."""

    def __init__(self):
        super().__init__()
        self.body, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.body(x.view(len(x), 2, -1))[0][:, -1])


class Experts(nn.Module):
    """Layers of which each sees some of the rows."""

    def __init__(self):
        super().__init__()
        self.experts, self.last = nn.ModuleList(nn.Linear(6, 5) for _ in range(2)), nn.Linear(5, 3)

    def forward(self, x):
        hidden, own = x.new_zeros(len(x), 5), (x[:, 0] > 0).long()
        for k, expert in enumerate(self.experts):
            index = torch.nonzero(own == k)[:, 0]
            hidden = hidden.index_copy(0, index, expert(x[index]))
        return self.last(hidden.tanh())


class PatchTransformer(nn.Module):
    """PyTorch's own transformer of two blocks on four patches of an image, and their mean."""

    def __init__(self, n_classes, width=16):
        super().__init__()
        own = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.embed, self.place = nn.Conv2d(1, width, 4, stride=4), nn.Embedding(4, width)
        blocks = (nn.TransformerEncoderLayer(width, 2, 2 * width, **own) for _ in range(2))
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.head = nn.Linear(width, n_classes)

    def forward(self, x):
        x = self.embed(x).flatten(2).mT
        x = x + self.place(torch.arange(4, device=x.device).expand(len(x), -1))
        return self.head(self.blocks(x).mean(1))


def flat_perceptron(n_classes=2, width=32):
    """A perceptron of two hidden layers on flattened images."""
    hidden = nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, n_classes))


# Name -> what makes a network for images of one channel, by the number of classes.
MODULES = {
    "perceptron": flat_perceptron,
    "convnet": ConvNet,
    "convnet+bn": lambda n_classes: ConvNet(n_classes, batch_norm=True),
    "transformer": PatchTransformer,
}


def frozen_norm():
    """A ConvNet whose first normalization was frozen, in the way that is common."""
    module = MODULES["convnet+bn"](3)
    module.norm1.running_mean.fill_(0.3)
    module.norm1.running_var.fill_(2.0)
    module.norm1.eval()
    return module


def partly_frozen():
    """A perceptron that moves by a bias alone, by a weight alone, and by both."""
    module = flat_perceptron(3, 6)
    module[1].weight.requires_grad_(False)
    module[3].bias.requires_grad_(False)
    return module


def dead():
    """A perceptron whose hidden units are 0 for all inputs."""
    module = mlp(6, 5, 3)
    nn.init.constant_(module.linears[0].bias, -100.0)
    return module


def hooked():
    """Layers whose inputs and outputs are changed by hooks of the user's."""
    first, norm, last = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
    first.register_forward_pre_hook(lambda layer, args: (0.5 * args[0],))
    first.register_forward_hook(lambda layer, args, output: 0.2 * output + 0.1)
    norm.register_forward_hook(lambda layer, args, output: output.square())
    last.register_forward_hook(lambda layer, args, output: output.tanh())
    return nn.Sequential(first, norm, nn.Tanh(), last)


def normed():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5)), nn.Linear(5, 3))


# Name -> what makes the module, and a mini-batch of it. The gram sampler serves these:
CHAINS = {
    "mlp": (lambda: mlp(6, 5, 3), rows()),
    "mlp+bn": (lambda: normalized_mlp(6, 5, 4, 3), rows()),
    "no hidden layer": (lambda: mlp(6, 3), rows()),
    "one row": (lambda: mlp(6, 5, 3), rows(1)),
    "duplicate rows": (lambda: mlp(6, 5, 3), rows(2)[[0, 1, 0, 0]]),
    "more rows than inputs": (lambda: mlp(2, 3, 2), rows(9, 2)),
    "zero input": (lambda: mlp(6, 5, 3), np.zeros((3, 6), np.float32)),
    "dead layer": (dead, rows()),
    "flatten first": (lambda: flat_perceptron(3, 6), images()),
    "elementwise first": (lambda: nn.Sequential(nn.ReLU(inplace=True), perceptron()), rows()),
    "frozen parameters": (partly_frozen, images()),
    "a sequence of a class of its own": (
        lambda: type("Own", (nn.Sequential,), {})(*perceptron(nn.Tanh())),
        rows(),
    ),
    "without biases": (
        lambda: nn.Sequential(
            nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False), nn.Linear(3, 2)
        ),
        rows(),
    ),
}
# And these the functional one alone.
OTHERS = {
    **{name: (lambda make=make: make(3), images()) for name, make in MODULES.items()},
    "twice": (twice, rows()),
    "tied": (tied, rows()),
    "words": (Words, tokens()),
    "convolutions": (Convs, rows(width=12)),
    "frozen norm": (frozen_norm, images()),
    "hooked": (hooked, rows()),
    "in place": (lambda: Halved(in_place=True), rows()),
    "bare parameters": (Bare, rows()),
    "spectral norm": (normed, rows()),
    "experts": (Experts, rows(6)),
}
del OTHERS["perceptron"]
# This is beyond vmap: networks pass one after the other, with a warning.
BEYOND_VMAP = {"lstm": (Recurrent, rows())}
ZOO = {**CHAINS, **OTHERS, **BEYOND_VMAP}


def looked_at(module, X, sampler="auto", double=False):
    """A module in the mode of pre-training, what a look at it shows, and a mini-batch."""
    module, X = copy.deepcopy(module), torch.as_tensor(X)
    if double:
        module, X = module.double(), X.double() if X.is_floating_point() else X
    pretraining_mode_(module)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The paper's terms are slow")
        return module, inspect_module(module, X, sampler), X


def of_zoo(name, sampler="auto", double=True):
    make, X = ZOO[name]
    return looked_at(seeded(make), X, sampler, double)
