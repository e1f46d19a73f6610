"""What tests of several rooms make: small networks, points, images, teams of threads."""

from contextlib import contextmanager

import numpy as np
import torch

from sklearn_mmdinit._compute import team
from sklearn_mmdinit._network import MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_

# Widths of networks that are and are not worth a second thread.
LARGE = (784, 392, 2)
SMALL = (4, 3, 2)


@contextmanager
def threads(n):
    """So many threads of PyTorch's for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def as_a_team_of(n):
    with threads(n), team(LARGE, 10_000, "cpu"):
        yield


def images(n, *shape, seed=0):
    """Noise of any shape, float64."""
    return np.random.default_rng(seed).normal(size=(n, *shape))


def network(*widths, activation="relu", batch_norm=False):
    architecture = Architecture(widths[0], widths[1:-1], widths[-1], activation, batch_norm)
    module = initialize_(MLP(architecture), "he", torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for i, norm in enumerate(module.norm_layers):
            norm.weight.copy_(torch.linspace(0.5, 1.5, len(norm.weight)))
            norm.bias.fill_(0.1 * i)
    return module


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def uniform_simplex(*shape, seed=0):
    return torch.from_numpy(
        np.random.default_rng(seed).dirichlet([1.0] * shape[-1], size=shape[:-1])
    )
