"""Both samplers draw the same law, and the gradient of one is the other's on average."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from helpers import as_a_team_of
from sklearn_mmdinit._compute import StepRandom, Workspace
from sklearn_mmdinit._network import MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_
from sklearn_mmdinit._sampling import SAMPLERS, Perturbation, networks, perturbed_logits
from sklearn_mmdinit._sampling.law import bias_std, weight_std

SCALE = math.sqrt(0.5)


def network(*widths, activation="relu", batch_norm=False, init="he", dtype=torch.float64):
    architecture = Architecture(widths[0], widths[1:-1], widths[-1], activation, batch_norm)
    module = initialize_(MLP(architecture), init, torch.Generator().manual_seed(0))
    return module.to(dtype)


def rows(n, n_features, seed=0):
    return torch.randn(
        n, n_features, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )


def draw(module, X, n_networks, sampler, seed):
    random = StepRandom(seed, dtype=X.dtype)
    with torch.no_grad():
        return perturbed_logits(module, X, Perturbation(n_networks, SCALE, sampler), random).numpy()


CASES = {
    "plain": (network(6, 5, 3), rows(4, 6)),
    "tanh": (network(6, 5, 3, activation="tanh"), rows(4, 6)),
    "gelu": (network(6, 5, 3, activation="gelu"), rows(4, 6)),
    "batch norm": (network(6, 5, 3, batch_norm=True), rows(4, 6)),
    "duplicate rows": (network(6, 5, 3), rows(2, 6)[[0, 1, 0, 0]]),
    "one row": (network(6, 5, 3), rows(1, 6)),
    "more rows than inputs": (network(2, 3, 2), rows(9, 2)),
    "zero input": (network(6, 5, 3), torch.zeros(3, 6, dtype=torch.float64)),
    "no hidden layer": (network(6, 3), rows(4, 6)),
}


@pytest.mark.parametrize("case", CASES)
def test_samplers_agree_in_law(case):
    # Mean, covariance across the mini-batch for the same eps, and the whole law of an output.
    module, X = CASES[case]
    n = 20_000
    direct = draw(module, X, n, "direct", seed=1).reshape(n, -1)
    gram = draw(module, X, n, "gram", seed=2).reshape(n, -1)
    spread = np.sqrt((direct.var(0) + gram.var(0)) / n)
    assert np.all(np.abs(direct.mean(0) - gram.mean(0)) < 5 * spread)
    covariance = np.cov(direct.T), np.cov(gram.T)
    scale = np.sqrt(np.outer(np.diag(covariance[0]), np.diag(covariance[0])))
    # The kurtosis of a deep network's output exceeds a normal's: a wide margin.
    assert np.abs(covariance[0] - covariance[1]).max() < (0.12 * scale).max()
    for column in range(direct.shape[1]):
        assert stats.ks_2samp(direct[:, column], gram[:, column]).pvalue > 1e-4


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_dead_layer(sampler):
    # All units of the first layer off for every input: what is left is the law of the second
    # layer's biases alone, the same for all rows.
    module = network(4, 6, 2)
    with torch.no_grad():
        module.linear_layers[0].bias.fill_(-1e3)
    logits = draw(module, rows(5, 4), 5000, sampler, seed=0)
    assert np.abs(logits - logits[:, :1]).max() < 1e-9
    assert stats.kstest(logits[:, 0, 0] / bias_std(2, SCALE), "norm").pvalue > 1e-3


def test_duplicate_rows_get_equal_outputs():
    module = network(6, 5, 3)
    logits = draw(module, rows(2, 6)[[0, 1, 0]], 100, "gram", seed=0)
    assert np.abs(logits[:, 0] - logits[:, 2]).max() < 1e-6
    assert np.abs(logits[:, 0] - logits[:, 1]).min() > 0


def test_single_layer_covariance_is_known():
    # One linear layer: the covariance across rows is (s^2 / n_in) X X^T + (s^2 / n_out).
    module, X = network(6, 2), rows(3, 6)
    expected = weight_std(6, SCALE) ** 2 * (X @ X.T).numpy() + bias_std(2, SCALE) ** 2
    for sampler in ("direct", "gram"):
        logits = draw(module, X, 200_000, sampler, seed=3)
        assert np.allclose(np.cov(logits[:, :, 0].T), expected, rtol=0.03)
        # Output units are independent.
        between = np.mean(
            (logits[:, :, 0] - logits[:, :, 0].mean(0))
            * (logits[:, :, 1] - logits[:, :, 1].mean(0)),
            axis=0,
        )
        assert np.abs(between).max() < 0.02 * expected.max()


def _explicit(module, X, random_seed, n_networks):
    """Logits of the networks theta0 + E with the most likely E behind the gram noise."""
    random = StepRandom(random_seed, dtype=X.dtype)
    H = X.expand(n_networks, -1, -1)
    for layer, linear in enumerate(module.linear_layers):
        n_out, n_in = linear.weight.shape
        ones = torch.ones(len(X), len(X), dtype=X.dtype)
        with torch.no_grad():
            C = weight_std(n_in, SCALE) ** 2 * H @ H.mT + bias_std(n_out, SCALE) ** 2 * ones
            Z = random.normal(n_networks, len(X), n_out)
            solved = torch.linalg.solve(C, torch.linalg.cholesky(C) @ Z)
            E = weight_std(n_in, SCALE) ** 2 * (H.mT @ solved).mT
            e = bias_std(n_out, SCALE) ** 2 * solved.sum(1, keepdim=True)
        H = H @ (linear.weight + E).mT + linear.bias + e
        if layer < len(module.linear_layers) - 1:
            H = H.relu()
    return H


@pytest.mark.parametrize("workspace", [None, Workspace()])
def test_gram_is_the_direct_form_at_the_most_likely_perturbation(workspace):
    module, X = network(7, 9, 8, 3), rows(5, 7)
    weights = torch.linspace(-1, 1, 4 * 5 * 3, dtype=X.dtype).reshape(4, 5, 3)
    logits = perturbed_logits(
        module, X, Perturbation(4, SCALE, "gram"), StepRandom(3, dtype=X.dtype), workspace=workspace
    )
    expected = _explicit(module, X, 3, 4)
    assert torch.allclose(logits, expected, atol=1e-10)
    parameters = list(module.parameters())
    ours = torch.autograd.grad((logits.square() * weights).sum(), parameters)
    theirs = torch.autograd.grad((expected.square() * weights).sum(), parameters)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-9 * float(b.abs().max()) + 1e-12)


def _mean_gradient(module, X, sampler, seed, n_networks=300):
    logits = perturbed_logits(
        module, X, Perturbation(n_networks, SCALE, sampler), StepRandom(seed, dtype=X.dtype)
    )
    # A loss that is not linear in eps, summed over networks so that its mean is a Monte Carlo.
    loss = logits.softmax(-1)[..., 0].square().mean()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


@pytest.mark.parametrize("case", ["plain", "duplicate rows", "more rows than inputs", "tanh"])
def test_gradients_agree_in_expectation(case):
    module, X = CASES[case]
    direct = torch.stack([_mean_gradient(module, X, "direct", seed) for seed in range(80)])
    gram = torch.stack([_mean_gradient(module, X, "gram", seed) for seed in range(80)])
    spread = ((direct.var(0) + gram.var(0)) / 80).sqrt()
    assert float(((direct.mean(0) - gram.mean(0)).abs() / (spread + 1e-7)).max()) < 5
    # Conditional expectation: the variance over all parameters cannot be larger, up to the
    # error of two estimates from 80 draws.
    assert float(gram.var(0).sum()) < 1.6 * float(direct.var(0).sum())


def test_direct_gradient_by_finite_differences():
    module, X = network(4, 5, 2, activation="tanh"), rows(3, 4)

    def loss():
        logits = perturbed_logits(
            module, X, Perturbation(3, SCALE, "direct"), StepRandom(0, dtype=X.dtype)
        )
        return logits.softmax(-1)[..., 0].square().sum()

    parameters = list(module.parameters())
    gradients = torch.autograd.grad(loss(), parameters)
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for i in range(0, len(flat), 3):
            centre = float(flat[i])
            flat[i] = centre + step
            above = float(loss().detach())
            flat[i] = centre - step
            below = float(loss().detach())
            flat[i] = centre
            assert (above - below) / (2 * step) == pytest.approx(
                float(gradient.view(-1)[i]), rel=1e-6, abs=1e-8
            )


def asked_for(module, X, n_networks=5):
    """Shapes of the normals that "auto" asks for: they tell the samplers apart."""
    asked = []

    class Counting(StepRandom):
        def normal(self, *shape, out=None):
            asked.append(shape)
            return super().normal(*shape, out=out)

    perturbed_logits(module, X, Perturbation(n_networks, SCALE, "auto"), Counting(0, dtype=X.dtype))
    return asked


def test_auto_takes_the_cheaper_sampler_of_each_layer():
    # 9 rows: gram for the layer with 20 inputs, direct for the one with 4.
    assert asked_for(network(20, 4, 2), rows(9, 20)) == [(5, 9, 4), (5, 2, 4), (5, 1, 2)]
    # Wide layers by gram; the last one has few weights, and its factor would cost more.
    wide = asked_for(network(300, 300, 300, 2), rows(8, 300))
    assert wide == [(5, 8, 300), (5, 8, 300), (5, 2, 300), (5, 1, 2)]


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of one network or two, as of networks much larger than a test's."""
    monkeypatch.setattr(networks, "_NUMBERS_A_PART", 60)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("with_workspace", [False, True])
def test_parts_and_threads_change_nothing(sampler, batch_norm, with_workspace):
    module, X = network(7, 9, 8, 3, batch_norm=batch_norm), rows(5, 7)
    parameters = list(module.parameters())
    workspace = Workspace() if with_workspace else None
    results = []
    for n_threads in (1, 2, 3, 1):
        with as_a_team_of(n_threads):
            logits = perturbed_logits(
                module, X, Perturbation(7, SCALE, sampler), StepRandom(3, dtype=X.dtype), workspace
            )
            gradients = torch.autograd.grad(logits.square().sum(), parameters)
        with as_a_team_of(n_threads), torch.no_grad():
            values = perturbed_logits(
                module, X, Perturbation(7, SCALE, sampler), StepRandom(3, dtype=X.dtype), workspace
            )
        assert torch.equal(values, logits)
        # Copies: the next step overwrites the buffers of a workspace.
        results.append((logits.detach().clone(), [g.clone() for g in gradients]))
    assert results[0][0].shape == (7, 5, 3)
    for logits, gradients in results[1:]:
        assert torch.equal(logits, results[0][0])
        for gradient, first in zip(gradients, results[0][1], strict=True):
            torch.testing.assert_close(gradient, first, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("small_parts")
def test_samplers_agree_in_law_in_parts():
    test_samplers_agree_in_law("plain")
    test_gradients_agree_in_expectation("plain")


@pytest.mark.usefixtures("small_parts")
def test_finite_differences_in_parts():
    test_direct_gradient_by_finite_differences()


def test_workspace_does_not_change_results():
    module, X = network(7, 9, 2), rows(5, 7)
    workspace = Workspace()
    for seed in (0, 1):
        fresh = draw(module, X, 6, "gram", seed)
        with torch.no_grad():
            reused = perturbed_logits(
                module,
                X,
                Perturbation(6, SCALE, "gram"),
                StepRandom(seed, dtype=X.dtype),
                workspace=workspace,
            ).numpy()
        assert np.array_equal(fresh, reused)


@pytest.mark.parametrize("sampler", ["gram", "direct"])
def test_gradients_are_not_in_memory_that_the_next_step_overwrites(sampler):
    module, X = network(7, 9, 9, 2), rows(5, 7)
    workspace = Workspace()

    def gradients(seed):
        random = StepRandom(seed, dtype=X.dtype)
        perturbation = Perturbation(6, SCALE, sampler)
        logits = perturbed_logits(module, X, perturbation, random, workspace=workspace)
        module.zero_grad(set_to_none=True)
        logits.square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    first = gradients(0)
    before = [gradient.clone() for gradient in first]
    gradients(1)
    for gradient, expected in zip(first, before, strict=True):
        assert torch.equal(gradient, expected)
