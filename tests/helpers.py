"""What several tests make: perceptrons, points, images, finite differences, threads, processes."""

import multiprocessing
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from sklearn_mmdinit import MLP
from sklearn_mmdinit._base.threads import team

# Multiplications of a product that is, and of one that is not, worth a second thread.
LARGE, SMALL = 1 << 30, 1 << 10

# Begins processes. Their one server imports once for all what stands in the first list it is given,
# and leaves out what is not installed.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    ["accelerate", "lightning", "sklearn_mmdinit", "torch._dynamo", "sklearn.datasets", "pytest"]
)

# PyTorch 2.6 draws other exponentials, of the same law, so other points of the simplex.
_DRAWN = torch.empty(40).exponential_(generator=torch.Generator().manual_seed(0))
SAME_DRAWS = pytest.mark.skipif(
    abs(float(_DRAWN[0]) - 3.5083) > 1e-3, reason="this PyTorch has other draws than the figures'"
)


@contextmanager
def _for_a_while(get, set_to, value):
    before = get()
    set_to(value)
    try:
        yield
    finally:
        set_to(before)


# So many threads of PyTorch's for a while, and what it makes floats of.
threads = partial(_for_a_while, torch.get_num_threads, torch.set_num_threads)
default_dtype = partial(_for_a_while, torch.get_default_dtype, torch.set_default_dtype)


@contextmanager
def as_a_team_of(n):
    with threads(n), team(LARGE):
        yield


def images(n, *shape, seed=0):
    """Noise of any shape, float64."""
    return np.random.default_rng(seed).normal(size=(n, *shape))


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def mlp(*widths, activation="relu", init="he"):
    """A perceptron."""
    first, *hidden, last = widths
    return seeded(lambda: MLP(first, hidden, last, activation, init))


class Unknown(MLP):
    """A perceptron that the gram sampler does not know, because it is of another class."""


def normalized_mlp(*widths):
    """A perceptron of ReLU with batch normalization, which scales and shifts."""
    parts = []
    for i, linear in enumerate(mlp(*widths).linears[:-1]):
        norm = nn.BatchNorm1d(linear.out_features)
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 1.5, linear.out_features))
            norm.bias.fill_(0.1 * i)
        parts += [linear, norm, nn.ReLU()]
    return nn.Sequential(*parts, mlp(*widths).linears[-1])


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def uniform_simplex(*shape, seed=0):
    return torch.from_numpy(
        np.random.default_rng(seed).dirichlet([1.0] * shape[-1], size=shape[:-1])
    )


def learned_of(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def slopes_of(loss, module, **options):
    """Of every parameter that is learned, also of one that the loss does not depend on."""
    own = {"allow_unused": True, "materialize_grads": True, **options}
    return torch.autograd.grad(loss, learned_of(module), **own)


def assert_slopes_are_differences(loss, module, slopes=None, step=1e-6, tol=1e-6):
    """Slopes along a direction are differences of a loss in float64 after a step both ways."""
    parameters, slopes = learned_of(module), slopes or slopes_of(loss(), module)
    ways = [normal(*own.shape, seed=i) for i, own in enumerate(parameters)]
    values = []
    for signed in (step, -2 * step):
        with torch.no_grad():
            for parameter, way in zip(parameters, ways, strict=True):
                parameter.add_(way, alpha=signed)
        values.append(loss().detach())
    with torch.no_grad():
        for parameter, way in zip(parameters, ways, strict=True):
            parameter.add_(way, alpha=step)
    along = sum((slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
    found = (values[0] - values[1]) / (2 * step)
    torch.testing.assert_close(found, along, atol=tol, rtol=tol)
