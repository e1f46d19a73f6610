"""Gain: larger hidden weights, the same function."""

import numpy as np
import pytest
import torch

from helpers import network, normal
from sklearn_mmdinit._network import (
    Architecture,
    has_gain,
    module_from_theta0,
    theta0_from_module,
    with_gain,
    without_gain,
)
from sklearn_mmdinit._pretraining.blueprint import PerceptronBlueprint
from sklearn_mmdinit._pretraining.gain import gain_of_first_step


def first_step(theta0, X, **options):
    blueprint = PerceptronBlueprint(theta0.architecture, "he", seed=0)
    return gain_of_first_step(theta0, blueprint, X, **options)


@pytest.fixture
def theta0():
    module = network(4, 6, 5, 3)
    with torch.no_grad():
        for linear in module.linear_layers:
            linear.bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return theta0_from_module(module.float())


@pytest.mark.parametrize("factors", [(4.0, 4.0), (0.5, 30.0), (1.0, 2.0)])
def test_the_function_is_the_same_and_hidden_activations_are_scaled(factors, theta0):
    X = normal(50, 4).float()
    before, after = module_from_theta0(theta0), module_from_theta0(with_gain(theta0, factors))
    torch.testing.assert_close(after(X), before(X), rtol=1e-4, atol=1e-5)
    scales = np.cumprod(factors)
    for own, other, scale in zip(
        after.hidden_layers(X), before.hidden_layers(X), scales, strict=True
    ):
        torch.testing.assert_close(own, other * float(scale), rtol=1e-4, atol=1e-5)


def test_a_gain_of_one_is_theta0_itself_and_the_inverse_undoes(theta0):
    assert with_gain(theta0, (1.0, 1.0)) is theta0
    twice = with_gain(with_gain(theta0, (3.0, 7.0)), (2.0, 0.5))
    assert twice.gain == (6.0, 3.5)
    there_and_back = without_gain(twice)
    assert there_and_back.gain == ()
    assert without_gain(theta0) is theta0
    for name, array in theta0.arrays.items():
        np.testing.assert_allclose(there_and_back.arrays[name], array, rtol=1e-6)
        assert there_and_back.arrays[name].dtype == array.dtype


@pytest.mark.parametrize(
    ("activation", "batch_norm", "expected"),
    [("relu", False, True), ("relu", True, False), ("tanh", False, False), ("gelu", False, False)],
)
def test_who_can_have_a_gain(activation, batch_norm, expected):
    assert has_gain(Architecture(3, (4,), 2, activation, batch_norm)) is expected


def test_a_gain_that_cannot_be_is_refused(theta0):
    with pytest.raises(ValueError, match=r"\(2.0,\) must have 2 factors"):
        with_gain(theta0, (2.0,))
    with pytest.raises(ValueError, match=r"gain=\(1e\+38, 1e\+20\) makes weights too large .*bias"):
        with_gain(theta0, (1e38, 1e20))
    tanh = theta0_from_module(network(4, 6, 2, activation="tanh").float())
    with pytest.raises(ValueError, match="would change the function"):
        with_gain(tanh, (2.0,))


@pytest.mark.parametrize("learning_rate", [1e-3, 1e-2])
def test_the_rule_makes_the_first_step_of_adam_as_long_as_it_says(learning_rate, theta0):
    X = normal(200, 4).numpy()
    factors = first_step(theta0, X, step=5.0, learning_rate=learning_rate)
    assert len(set(factors)) == 1
    module = module_from_theta0(with_gain(theta0, factors))
    rows = torch.from_numpy(X.astype(np.float32))
    before = module(rows).detach()
    # A gradient of one sign: every weight of the last layer moves the same way.
    optimizer = torch.optim.Adam([module.linear_layers[-1].weight], lr=learning_rate)
    (-module(rows)).sum().backward()
    optimizer.step()
    moved = (module(rows).detach() - before)[:, 0]
    assert float(moved.mean()) == pytest.approx(5.0, rel=1e-2)


def test_the_rule_does_not_depend_on_a_scale_that_the_network_had(theta0):
    X = normal(200, 4).numpy()
    own = with_gain(theta0, first_step(theta0, X, step=5.0))
    scaled = with_gain(theta0, (2.0, 2.0))
    again = with_gain(scaled, first_step(scaled, X, step=5.0))
    for name, array in own.arrays.items():
        np.testing.assert_allclose(again.arrays[name], array, rtol=1e-4)


def test_where_there_is_nothing_to_scale_all_factors_are_one():
    X = normal(20, 4).numpy()
    for options in ({"activation": "tanh"}, {"batch_norm": True}):
        theta0 = theta0_from_module(network(4, 6, 5, 2, **options).float())
        assert first_step(theta0, X, step=5.0) == (1.0, 1.0)
    dead = network(4, 6, 2).float()
    with torch.no_grad():
        dead.linear_layers[0].weight.zero_()
    assert first_step(theta0_from_module(dead), X, step=5.0) == (1.0,)
