"""What the paper counts, of networks whose answers are known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from nets import Conv, digit_images
from protocol.diagnostics import dead_neuron_ratio, degenerate_softmax_ratio, prediction_samples


def network(*layers):
    """A ReLU network of given weights (n_in, n_out) and biases."""
    parts = []
    for W, b in layers:
        linear = nn.Linear(*np.shape(W))
        linear.weight.data = torch.tensor(np.asarray(W).T, dtype=torch.float32)
        linear.bias.data = torch.tensor(b, dtype=torch.float32)
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(40, 3))


# degenerate softmax


def test_a_class_that_always_wins_is_degenerate(X):
    own = {"n_batches": 4, "n_perturbations": 16, "seed": 0}
    two_of_three = network(([[100, -100, 0], [0, 0, 0], [0, 0, 0]], [0, 0, -900]))
    ratios = degenerate_softmax_ratio(two_of_three, X, batch_size=40, **own)
    np.testing.assert_array_equal(ratios, np.ones(4))


def test_a_network_that_uses_all_classes_is_not(X):
    X = np.vstack([X[:20], -X[:20]])  # with as many rows of either sign
    last = [[100, -100], [0, 0], [0, 0]], [-1000, 1000]
    theta0 = network((np.diag([1.0, 0, 0]), [10, 0, 0]), last)
    own = {"n_batches": 4, "perturbation_scale": 0.01, "seed": 0}
    ratios = degenerate_softmax_ratio(theta0, X, batch_size=40, **own)
    np.testing.assert_array_equal(ratios, np.zeros(4))
    one_row = degenerate_softmax_ratio(theta0, X, batch_size=1, **own)
    np.testing.assert_array_equal(one_row, np.ones(4), err_msg="one row shows one class")


@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_the_ratio_of_pure_noise(scale):
    # theta0 = 0 and inputs +1, -1: the difference of the logits is +-e + b with e ~ N(0, 2 s^2)
    # and b ~ N(0, s^2), whose sign is the same for both inputs where |b| > |e|.
    theta0 = network((np.zeros((1, 2)), [0, 0]))
    own = {"n_perturbations": 2000, "n_batches": 5, "seed": 0, "perturbation_scale": scale}
    ratios = degenerate_softmax_ratio(theta0, np.array([[1.0], [-1.0]]), **own)
    assert len(set(ratios)) == 5, "each mini-batch has perturbations of its own"
    assert ratios.mean() == pytest.approx(2 / math.pi * math.atan(math.sqrt(0.5)), abs=0.02)


# dead neurons


def test_the_ratio_of_dead_neurons_is_exact(X):
    # Of four units one is dead by its bias, one by weights and bias 0; then two of two.
    first = (np.vstack([np.ones((1, 4)), np.zeros((2, 4))]) * [1, 1, 1, 0], [50, -50, 60, 0])
    second = (-np.ones((4, 2)), [0, -1])
    third = (np.zeros((2, 5)), [1, 1, -1, 1, 1])  # a dead layer; biases alone decide
    theta0 = network(first, second, third, (np.ones((5, 2)), [0, 0]))
    ratios = dead_neuron_ratio(theta0, X, n_batches=6, seed=0)
    np.testing.assert_array_equal(ratios, np.tile([0.5, 1.0, 0.2], (6, 1)))


def test_a_unit_is_dead_only_if_it_is_for_every_row():
    theta0 = network((np.array([[1.0, -1.0]]), [0, 0]), (np.eye(2), [0, 0]))
    X = np.array([[1.0]] * 9 + [[-1.0]])
    all_rows = dead_neuron_ratio(theta0, X, batch_size=10, n_batches=3, seed=0)
    np.testing.assert_array_equal(all_rows, np.zeros((3, 1)))
    one_row = dead_neuron_ratio(theta0, X, batch_size=1, n_batches=3, seed=0)
    np.testing.assert_array_equal(one_row, np.full((3, 1), 0.5))
    # Without replacement: five of ten rows hold the last one half of the time.
    half = dead_neuron_ratio(theta0, X, batch_size=5, n_batches=400, seed=0)
    assert set(half.ravel()) == {0.0, 0.5}
    assert (half == 0).mean() == pytest.approx(0.5, abs=0.1)


# predictions


def test_without_noise_predictions_are_those_of_the_module():
    X, _ = digit_images(30)
    module = Conv(n_classes=2).eval()
    still = prediction_samples(module, X, 2, perturbation_scale=0.0, seed=0)
    expected = module(torch.from_numpy(X)).detach().softmax(-1)
    np.testing.assert_allclose(still, expected.expand(2, -1, -1), atol=1e-5)


@pytest.mark.parametrize("function", [degenerate_softmax_ratio, dead_neuron_ratio])
def test_the_seed_decides_all(function, X):
    rng = np.random.default_rng(0)
    theta0 = network((rng.normal(size=(3, 60)), np.full(60, -2.5)), (np.zeros((60, 2)), [0, 0]))
    first = function(theta0, X, seed=5)
    np.testing.assert_array_equal(function(theta0, X, seed=5), first)
    assert not np.array_equal(function(theta0, X, seed=6), first)
