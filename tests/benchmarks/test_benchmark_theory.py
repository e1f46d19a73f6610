"""The paper's bounds: by hand, and against what they bound where that is known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from protocol.theory import (
    class_probability_lower_bound,
    jacobian_row_norm_mean,
    mean_vertex_distances,
    perturbation_norm_tail_bound,
    perturbation_std,
    relu_jacobian_row_norms,
)

# Theorem 1


@pytest.mark.parametrize("m", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("form", ["theorem", "sub_exponential"])
def test_tail_bound_is_above_the_exact_chi_squared_tail(m, form):
    """With equal sigma the norm has a known law: no sampling noise, and far into the tail."""
    sigma = 0.3
    radii = sigma * math.sqrt(m) * np.linspace(1.0001, 6.0, 400)
    bound = perturbation_norm_tail_bound(radii, np.full(m, sigma), form)
    exact_log = stats.chi2.logsf((radii / sigma) ** 2, df=m)
    positive = bound > 0
    assert (np.log(bound[positive]) >= exact_log[positive]).all()
    # Where the bound underflows so does the tail.
    assert (exact_log[~positive] < -700).all()


@pytest.mark.parametrize(
    ("form", "squared_radii", "exponents"),
    [
        # m = 2, alpha_* = 4: eta is 2, 0.5 and 4, and the last is above m: the branch m * eta.
        ("theorem", [24.0, 12.0, 40.0], [4.0, 0.25, 8.0]),
        # sum sigma^2 = 5, sum sigma^4 = 17.
        ("sub_exponential", [9.0, 25.0], [16.0 / 17.0, 5.0]),
    ],
)
def test_tail_bounds_match_their_formulas_by_hand(form, squared_radii, exponents):
    found = perturbation_norm_tail_bound(np.sqrt(squared_radii), np.array([1.0, 2.0]), form)
    np.testing.assert_allclose(found, np.exp(-np.array(exponents) / 8.0), rtol=1e-12)


def test_a_bound_that_does_not_hold_is_refused():
    with pytest.raises(ValueError, match=r"sub_exponential.*above the radius 2"):
        perturbation_norm_tail_bound(np.array([9.0, 1.9]), np.array([0.0, 2.0]), "sub_exponential")


def test_perturbation_std_follows_the_fan_in_of_weights_and_the_fan_out_of_biases():
    std = perturbation_std((8, 2, 3), perturbation_scale=2.0)
    expected = [2 / math.sqrt(8)] * 16 + [2 / math.sqrt(2)] * 2  # first layer
    expected += [2 / math.sqrt(2)] * 6 + [2 / math.sqrt(3)] * 3  # logits
    np.testing.assert_allclose(std, expected)


# Theorem 2


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("concentration", [0.02, 0.5, 5.0])
def test_class_bound_is_below_the_share_of_the_class(n_classes, concentration):
    """Exact for any set of predictions, so no tolerance beyond rounding."""
    rng = np.random.default_rng(0)
    alpha = concentration * rng.uniform(0.01, 3.0, n_classes)
    probabilities = rng.dirichlet(alpha, size=300)
    # Very small alpha can underflow a whole row to NaN or zeros.
    probabilities = probabilities[np.isclose(probabilities.sum(axis=1), 1.0)]
    assert len(probabilities) > 100
    largest = probabilities == probabilities.max(axis=1, keepdims=True)
    bound = class_probability_lower_bound(mean_vertex_distances(probabilities), n_classes)
    assert (bound <= largest.mean(axis=0) + 1e-12).all()


def test_vertex_distances_by_hand():
    probabilities = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    expected = [math.sqrt(1.5) / 2, (math.sqrt(2) + math.sqrt(0.5)) / 2]
    np.testing.assert_allclose(
        mean_vertex_distances(probabilities), [expected[0], expected[1], expected[1]]
    )


# Theorem 3


@pytest.mark.parametrize("n_in", [1, 2, 3, 7])
def test_moments_agree_with_the_sum_over_all_patterns_of_open_units(n_in):
    """Exact enumeration: the norm of N open He weights is a scaled chi variable."""
    std = math.sqrt(2.0 / n_in)
    n_open = np.array([bin(pattern).count("1") for pattern in range(2**n_in)])
    chi_means = [0.0 if k == 0 else stats.chi.mean(k) for k in n_open]
    assert jacobian_row_norm_mean(n_in) == pytest.approx(std * np.mean(chi_means))


@pytest.mark.parametrize("n_in", [10**3, 10**4])
def test_the_mean_norm_of_wide_layers_tends_to_one(n_in):
    # E||J|| = 1 - 5 / (8 n) + O(1 / n^2).
    assert 1.0 - jacobian_row_norm_mean(n_in) == pytest.approx(0.625 / n_in, rel=2.0 / n_in)


def test_row_norms_are_the_autograd_jacobian():
    rng = np.random.default_rng(0)
    weight, inputs = rng.standard_normal((4, 6)), rng.standard_normal((3, 6))
    inputs[0, 2] = 0.0  # counts as closed
    found = relu_jacobian_row_norms(weight, inputs)
    for row, x in zip(found, inputs, strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda z: torch.tensor(weight) @ torch.relu(z), torch.tensor(x)
        )
        np.testing.assert_allclose(row, np.linalg.norm(jacobian.numpy(), axis=1), rtol=1e-12)
