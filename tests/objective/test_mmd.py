"""The MMD: invariants, known values, and its two implementations against each other."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from sklearn_mmdinit._objective.mmd import (
    BANDWIDTH_EXPONENTS,
    kernel_and_slope,
    median_bandwidth,
    mmd,
)
from sklearn_mmdinit._objective.mmd_interval import (
    SMALLEST_BANDWIDTH,
    interval_median_bandwidth,
    interval_mmd,
)


def simplex(*shape, seed=0, concentration=1.0):
    draws = np.random.default_rng(seed).dirichlet([concentration] * shape[-1], size=shape[:-1])
    return torch.from_numpy(draws)


def explicit_mmd(p, u, gamma, estimator):
    """The definition, by loops over points, for one input."""

    def k(x, y):
        distance = float((x - y).square().sum())
        return sum(math.exp(-distance / (2 * (2.0**i * gamma) ** 2)) for i in range(-4, 5))

    def within(points):
        n = len(points)
        pairs = [(i, j) for i in range(n) for j in range(n) if estimator == "biased" or i != j]
        return sum(k(points[i], points[j]) for i, j in pairs) / len(pairs)

    between = sum(k(x, y) for x in p for y in u) / (len(p) * len(u))
    return within(p) - 2 * between + within(u)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_mmd_is_its_definition(estimator, n_classes):
    P, U = simplex(2, 6, n_classes), simplex(5, n_classes, seed=1)
    gamma = median_bandwidth(P, U)
    expected = [explicit_mmd(p, U, float(g), estimator) for p, g in zip(P, gamma, strict=True)]
    assert mmd(P, U, gamma, estimator).numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_biased_mmd_of_equal_sets_is_zero(n_classes):
    U = simplex(40, n_classes)
    P = U[torch.randperm(40, generator=torch.Generator().manual_seed(0))][None]
    gamma = median_bandwidth(P, U)
    assert float(mmd(P, U, gamma, "biased").abs()) < 1e-12
    if n_classes == 2:
        value = interval_mmd(P[..., 0], U[:, 0], gamma, "biased")
        assert float(value.abs()) < 1e-7


@pytest.mark.parametrize("n_classes", [2, 3])
def test_unbiased_mmd_of_equal_laws_is_zero_on_average(n_classes):
    # 2,000 pairs of samples of 8; the bandwidth is fixed, since a U-statistic with a kernel
    # that depends on the sample is not unbiased.
    P = simplex(2000, 8, n_classes, seed=2)
    values, biased = [], []
    for seed in range(20):
        U, part = simplex(8, n_classes, seed=100 + seed), P[seed * 100 : (seed + 1) * 100]
        gamma = torch.full((100,), 0.4, dtype=torch.float64)
        values.append(mmd(part, U, gamma, "unbiased").mean())
        biased.append(mmd(part, U, gamma, "biased").mean())
    values, biased = np.asarray(values), np.asarray(biased)
    error = values.std() / math.sqrt(20)
    assert abs(values.mean()) < 4 * error
    assert biased.mean() > 10 * error


def test_mmd_of_a_point_mass_is_known():
    # All predictions at p = 1/2: E k(p, u) and E k(u, u') are integrals over the interval.
    gamma = 0.3

    def k(t):
        return sum(math.exp(-(t**2) / (2.0**i * gamma) ** 2) for i in range(-4, 5))

    between = 2 * integrate.quad(k, 0, 0.5)[0]
    within_u = 2 * integrate.quad(lambda t: (1 - t) * k(t), 0, 1, limit=200)[0]
    expected = 9 - 2 * between + within_u
    p = torch.full((1, 50), 0.5, dtype=torch.float64)
    u = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for estimator in ("biased", "unbiased"):
        value = interval_mmd(p, u, torch.tensor([gamma]), estimator, "closed_form")
        assert float(value) == pytest.approx(expected, abs=1e-6)


def test_closed_form_of_the_uniform_law_itself_is_near_zero():
    p = (torch.arange(512, dtype=torch.float64) + 0.5)[None] / 512
    gamma = torch.tensor([0.41], dtype=torch.float64)
    value = interval_mmd(p, p[0], gamma, "biased", "closed_form")
    assert 0 <= float(value) < 1e-5


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("law", ["uniform", "middle", "corner", "sharp", "edges"])
def test_interval_form_agrees_with_the_dense_one(law, estimator):
    generator = torch.Generator().manual_seed(3)
    draws = torch.rand(4, 60, dtype=torch.float64, generator=generator)
    p = {
        "uniform": draws,
        "middle": 0.4 + 0.2 * draws,
        "corner": 1e-3 * draws,
        "sharp": (20 * (draws - 0.5)).sigmoid(),
        "edges": draws.round(),
    }[law].requires_grad_()
    U = simplex(70, 2, seed=4)
    P = torch.stack([p, 1 - p], dim=-1)
    gamma = median_bandwidth(P, U)
    assert float(gamma.min()) > SMALLEST_BANDWIDTH
    dense = mmd(P, U, gamma, estimator)
    fast = interval_mmd(p, U[:, 0], gamma, estimator)
    assert torch.allclose(dense, fast, atol=2e-6)
    weights = torch.linspace(1, 2, 4, dtype=torch.float64)
    (expected,) = torch.autograd.grad((dense * weights).sum(), p)
    (gradient,) = torch.autograd.grad((fast * weights).sum(), p)
    assert torch.allclose(gradient, expected, atol=1e-5 * float(expected.abs().max()) + 1e-8)


@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_gradient_by_finite_differences(n_classes, estimator):
    P = simplex(2, 5, n_classes).requires_grad_()
    U = simplex(6, n_classes, seed=1)
    gamma = median_bandwidth(P.detach(), U)
    assert torch.autograd.gradcheck(lambda P: mmd(P, U, gamma, estimator), (P,))


@pytest.mark.parametrize("reference", ["sampled", "closed_form"])
def test_interval_gradient_by_finite_differences(reference):
    p = (simplex(2, 5, 2)[..., 0] * 0.9 + 0.05).requires_grad_()
    u, gamma = simplex(6, 2, seed=1)[:, 0], torch.tensor([0.3, 0.5], dtype=torch.float64)
    # The derivative is that of the interpolant, one order less exact than the value.
    assert torch.autograd.gradcheck(
        lambda p: interval_mmd(p, u, gamma, "unbiased", reference), (p,), atol=1e-5
    )


@pytest.mark.parametrize("n_p", [2, 7, 64])
@pytest.mark.parametrize("n_u", [2, 8, 65])
def test_median_is_the_lower_order_statistic_of_all_pairs(n_p, n_u):
    p, u = simplex(3, n_p, 2)[..., 0], simplex(n_u, 2, seed=1)[:, 0]
    for row, fast in zip(p, interval_median_bandwidth(p, u), strict=True):
        points = torch.cat([row, u]).numpy()
        i, j = np.triu_indices(len(points), 1)
        distances = np.sort(math.sqrt(2) * np.abs(points[i] - points[j]))
        assert len(distances) == n_p * (n_p - 1) / 2 + n_p * n_u + n_u * (n_u - 1) / 2
        assert float(fast) == pytest.approx(distances[(len(distances) - 1) // 2], abs=2e-7)
    P, U = torch.stack([p, 1 - p], -1), torch.stack([u, 1 - u], -1)
    dense = median_bandwidth(P, U)
    assert torch.allclose(dense, interval_median_bandwidth(p, u), atol=2e-7)


def test_median_with_ties_and_identical_points():
    p = torch.full((1, 6), 0.25)
    assert float(interval_median_bandwidth(p, torch.full((3,), 0.25))) == pytest.approx(1e-6)
    # 6 at 1/4 and 4 at 3/4: 21 of 45 distances are 0, 24 are 1/2.
    assert float(interval_median_bandwidth(p, torch.full((4,), 0.75))) == pytest.approx(
        math.sqrt(0.5), abs=1e-6
    )


def test_three_exponentials_are_nine_gaussians():
    squared = torch.linspace(0, 2, 400)
    gamma = torch.tensor(0.4)
    kernel, slope = kernel_and_slope(squared, gamma)
    exact, exact_slope = torch.zeros(400).double(), torch.zeros(400).double()
    for i in BANDWIDTH_EXPONENTS:
        rate = -0.5 / (0.4 * 2.0**i) ** 2
        exact += torch.exp(squared.double() * rate)
        exact_slope += rate * torch.exp(squared.double() * rate)
    assert float((kernel - exact).abs().max()) < 1e-5
    assert float((slope - exact_slope).abs().max() / exact_slope.abs().max()) < 1e-5


def test_no_gradient_through_the_bandwidth():
    p = torch.rand(2, 5, requires_grad=True)
    assert not interval_median_bandwidth(p, torch.rand(5)).requires_grad
    P = torch.stack([p, 1 - p], -1)
    assert not median_bandwidth(P, simplex(4, 2).float()).requires_grad


@pytest.mark.parametrize("n_inputs", [1, 5, 7])
def test_inputs_together_have_the_values_of_each_alone(n_inputs, monkeypatch):
    generator = torch.Generator().manual_seed(n_inputs)
    P, U = (
        torch.randn(*shape, 3, generator=generator, dtype=torch.float64).softmax(-1)
        for shape in ((n_inputs, 6), (4,))
    )
    P.requires_grad_()

    def measured(pairs_at_once):
        monkeypatch.setattr("sklearn_mmdinit._objective.mmd._PAIRS_AT_ONCE", pairs_at_once)
        gamma = median_bandwidth(P, U)
        values = mmd(P, U, gamma)
        (gradient,) = torch.autograd.grad(values @ torch.arange(1.0, n_inputs + 1).double(), P)
        return gamma, values.detach(), gradient

    alone = measured(1)
    for together in (measured(3 * 10**2), measured(10**6)):
        assert torch.equal(together[0], alone[0])
        for found, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-15)
