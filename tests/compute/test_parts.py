"""A function in parts is the function of the whole, gradients too."""

import pytest
import torch

from helpers import as_a_team_of
from sklearn_mmdinit._compute import concatenated

WEIGHTS = torch.linspace(-1, 2, 12, dtype=torch.float64).view(4, 3)


def part(i, tensors):
    a, b, c = tensors
    return (WEIGHTS[i] * a.exp() + b * c * i).sum().view(1)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("frozen", [0, 1, 2, None])
def test_gradients_are_those_of_the_whole(n_threads, frozen):
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(3, dtype=torch.float64, generator=generator).requires_grad_(i != frozen)
        for i in range(3)
    ]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    slopes = torch.arange(1.0, 5.0, dtype=torch.float64)
    whole = torch.cat([part(i, tensors) for i in range(4)])
    with as_a_team_of(n_threads):
        result = concatenated(part, 4, tensors)
        gradients = torch.autograd.grad(result, wanted, slopes)
    assert torch.equal(result, whole)
    torch.testing.assert_close(gradients, torch.autograd.grad(whole, wanted, slopes))


def test_without_gradients_there_is_no_graph():
    tensors = [torch.ones(3, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    with torch.no_grad():
        assert not concatenated(part, 4, tensors).requires_grad
    detached = [tensor.detach() for tensor in tensors]
    assert not concatenated(part, 4, detached).requires_grad
    assert concatenated(part, 4, tensors).requires_grad
    assert concatenated(part, 1, tensors).shape == (1,)
