"""L_sd: known values, extremes, finite differences."""

import math

import numpy as np
import pytest
import torch

from helpers import normal, uniform_simplex
from sklearn_mmdinit._objective.degeneracy import degeneracy


def test_degeneracy_by_hand():
    # Network 1: (1, 0) and (0, 1): each vertex at mean distance sqrt(2) / 2 = 1 / sqrt(2), loss 0.
    # Network 2: (1, 0) twice: the second vertex at sqrt(2), loss sqrt(2) - 1 / sqrt(2).
    # Network 3: (3/4, 1/4) twice: the second vertex at sqrt(2) 3/4.
    P = torch.tensor(
        [
            [[1.0, 0.0], [0.0, 1.0]],
            [[1.0, 0.0], [1.0, 0.0]],
            [[0.75, 0.25], [0.75, 0.25]],
        ],
        dtype=torch.float64,
    )
    root = math.sqrt(2)
    expected = [0, root - 1 / root, 0.75 * root - 1 / root]
    for k in range(3):
        assert float(degeneracy(P[k : k + 1])) == pytest.approx(expected[k], abs=1e-6)
    assert float(degeneracy(P)) == pytest.approx(np.mean(expected), abs=1e-6)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_degeneracy_extremes(d):
    vertex = torch.eye(d, dtype=torch.float64)
    # All inputs at one vertex is the worst: every other one at distance sqrt(2).
    worst = vertex[:1].expand(4, -1)[None]
    assert float(degeneracy(worst)) == pytest.approx(math.sqrt(2) - 1 / math.sqrt(d), abs=1e-5)
    # A network that answers 1/d for all inputs: sqrt(1 - 1/d) to each vertex.
    centre = torch.full((1, 4, d), 1 / d, dtype=torch.float64)
    expected = max(math.sqrt(1 - 1 / d), 1 / math.sqrt(d)) - 1 / math.sqrt(d)
    assert float(degeneracy(centre)) == pytest.approx(expected, abs=1e-9)
    for seed in range(5):
        value = float(degeneracy(uniform_simplex(6, 3, d, seed=seed)))
        assert 0 <= value <= math.sqrt(2) - 1 / math.sqrt(d)


def test_degeneracy_mean_is_over_inputs_of_the_same_network():
    # Swapping predictions between networks must change the loss; a mean over both at once
    # would not notice.
    P = torch.tensor([[[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]]], dtype=torch.float64)
    swapped = P.clone()
    swapped[0, 1], swapped[1, 0] = P[1, 0], P[0, 1]
    assert float(degeneracy(swapped)) > float(degeneracy(P)) + 0.1


def test_degeneracy_gradient_by_finite_differences():
    logits = normal(4, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: degeneracy(x.softmax(-1)), (logits,))
