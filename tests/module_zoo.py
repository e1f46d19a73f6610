"""Small modules that tests of several rooms perturb, each with a mini-batch that it takes."""

import math

import numpy as np
import torch
from torch import nn

from helpers import DoubleRandom
from sklearn_mmdinit._base.module_factory import ModuleFactory
from sklearn_mmdinit.networks.functional import perturbed_logits
from sklearn_mmdinit.networks.info import look_at

SCALE = math.sqrt(0.5)


def images(n=4, side=8, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 1, side, side)).astype(np.float32)


def rows(n=4, width=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def tokens(n=4, length=5, words=7, seed=0):
    return np.random.default_rng(seed).integers(words, size=(n, length))


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
        self.c = nn.Conv1d(6, 4, 3, padding=1, padding_mode="circular")
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.a(x.view(len(x), 2, -1)).tanh()
        return self.head(self.c(self.b(x).tanh()).tanh().mean(2))


class Volumes(nn.Module):
    """A convolution in three dimensions, and instance normalisation with running statistics."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 3, 2, padding=1, padding_mode="replicate")
        self.norm = nn.InstanceNorm3d(3, affine=True, track_running_stats=True)
        self.head = nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x.view(len(x), 1, 2, 3, -1))).relu().mean((2, 3, 4)))


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


class SequenceFirst(nn.Module):
    """Examples along the second axis inside."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 5), nn.Linear(5, 3)

    def forward(self, x):
        tokens = x.view(len(x), 4, -1).transpose(0, 1).contiguous()
        return self.head(self.layer(tokens).tanh().mean(0))


class Centred(nn.Module):
    """Rows that know of each other."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.layer(x).tanh()
        return self.head(hidden - hidden.mean(0))


class Router(nn.Module):
    """Control flow that depends on the data."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(6, 3)

    def forward(self, x):
        return self.left(x) if x.sum().item() > 0 else -self.left(x)


def profile_of(module, X, sampler="auto", hidden_layer=None):
    return look_at(ModuleFactory(module), np.asarray(X), sampler, hidden_layer)


def network_of(module, X, sampler="auto"):
    """A network, and a mini-batch of its."""
    made = profile_of(module, X, sampler)
    return made.network(made.fresh(), "cpu"), made.examples(X)


def double_network(module, X, sampler="auto"):
    """The same in double precision."""
    network, batch = network_of(module, X, sampler)
    network.module.double()
    return network, batch.double() if batch.is_floating_point() else batch


def draw(network, batch, n_copies, sampler, seed=0, scale=SCALE):
    return perturbed_logits(network, batch, n_copies, scale, DoubleRandom(seed), sampler)
