"""The three losses and their sum: known values, Jacobians, finite differences."""

import math

import numpy as np
import pytest
import torch

from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._network import ACTIVATIONS, MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_
from sklearn_mmdinit._objective import MMDObjective, RandomLabelObjective
from sklearn_mmdinit._objective.degeneracy import degeneracy
from sklearn_mmdinit._objective.detachment import detachment, jacobian_norms
from sklearn_mmdinit._objective.mmd import median_bandwidth, mmd
from sklearn_mmdinit._objective.mmd_interval import interval_mmd
from sklearn_mmdinit._objective.uniformity import uniformity
from sklearn_mmdinit._sampling import Perturbation


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


# --- L_uni -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_uniformity_vanishes_for_uniform_predictions(n_classes):
    values = [
        float(
            uniformity(
                uniform_simplex(200, 4, n_classes, seed=seed),
                uniform_simplex(200, n_classes, seed=100 + seed),
            )
        )
        for seed in range(10)
    ]
    point = float(
        uniformity(
            torch.full((200, 4, n_classes), 1 / n_classes, dtype=torch.float64),
            uniform_simplex(200, n_classes),
        )
    )
    # The median of distances between equal laws hardly depends on the sample.
    assert abs(np.mean(values)) < 0.01
    assert point > 1.0


def test_uniformity_takes_the_mean_over_inputs():
    P, U = uniform_simplex(30, 3, 2), uniform_simplex(30, 2, seed=1)
    each = [float(uniformity(P[:, i : i + 1], U)) for i in range(3)]
    assert float(uniformity(P, U)) == pytest.approx(np.mean(each), abs=1e-9)


def test_uniformity_falls_back_where_the_grid_is_too_coarse():
    # Few references among many equal predictions: the median distance is far below what the
    # grid resolves, and the dense form takes over.
    P = torch.full((100, 1, 2), 0.5, dtype=torch.float64)
    P[:, :, 0] += torch.linspace(0, 1e-3, 100, dtype=torch.float64)[:, None]
    P[:, :, 1] = 1 - P[:, :, 0]
    U = uniform_simplex(2, 2)
    gamma = median_bandwidth(P.transpose(0, 1), U)
    assert float(gamma) < 0.01
    expected = float(mmd(P.transpose(0, 1), U, gamma).mean())
    coarse = float(interval_mmd(P[..., 0].mT, U[:, 0], gamma).mean())
    assert abs(coarse - expected) > 1e-2
    # The search for the median ends at float32's resolution, 1e-4 of this bandwidth.
    assert float(uniformity(P, U)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_uniformity_gradient_with_respect_to_logits(n_classes, estimator):
    # Through softmax, as it is used: for two classes the gradient stands on the first alone.
    logits, U = normal(6, 2, n_classes), uniform_simplex(7, n_classes)
    logits.requires_grad_()
    loss = uniformity(logits.softmax(-1), U, estimator)
    (gradient,) = torch.autograd.grad(loss, logits)

    # The bandwidth is a constant of the gradient, so it is held fixed in the differences.
    gamma = median_bandwidth(logits.detach().softmax(-1).transpose(0, 1), U)

    def fixed(x):
        return mmd(x.softmax(-1).transpose(0, 1), U, gamma, estimator).mean()

    step = 1e-5
    for index in np.ndindex(6, 2, n_classes):
        shift = torch.zeros_like(logits)
        shift[index] = step
        with torch.no_grad():
            slope = float(fixed(logits + shift) - fixed(logits - shift)) / (2 * step)
        assert slope == pytest.approx(float(gradient[index]), abs=2e-6)


# --- L_sd --------------------------------------------------------------------------------


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


# --- L_iod -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(5, 3), (5, 4, 3), (5, 6, 4, 2)])
def test_jacobian_norms_against_autograd(widths, activation):
    module, X = network(*widths, activation=activation), normal(3, widths[0], seed=1)
    norms = jacobian_norms(module, X)
    assert norms.shape == (3, widths[-1], len(widths) - 1)
    function = ACTIVATIONS[activation].function
    layers = module.linear_layers
    for b in range(3):
        x = X[b]
        for start in range(len(layers)):

            def rest(x, start=start):
                for i in range(start, len(layers)):
                    x = layers[i](function(x) if i else x)
                return x

            jacobian = torch.autograd.functional.jacobian(rest, x)
            assert torch.allclose(norms[b, :, start], jacobian.norm(dim=1), atol=1e-6)
            x = layers[start](function(x) if start else x)


def test_jacobian_norms_under_batch_norm():
    # Evaluation mode makes the statistics constants for autograd as well.
    module, X = network(5, 6, 4, 2, batch_norm=True), normal(8, 5, seed=1)
    module(X)
    module.eval()
    norms = jacobian_norms(module, X)
    for b in range(3):
        jacobian = torch.autograd.functional.jacobian(lambda x: module(x[None])[0], X[b])
        assert torch.allclose(norms[b, :, 0], jacobian.norm(dim=1), atol=1e-6)
    # In training mode they are those of the mini-batch, and the running ones are updated once.
    module.train()
    before = module.norm_layers[0].num_batches_tracked.clone()
    H = module.linear_layers[0](X)
    assert not torch.allclose(jacobian_norms(module, X), norms, rtol=1e-3)
    assert int(module.norm_layers[0].num_batches_tracked - before) == 1
    gain = module.norm_layers[0].weight / (H.var(0, correction=0) + 1e-5).sqrt()
    assert torch.isfinite(gain).all()


def test_detachment_by_hand():
    # Linear network with rows of norm 2 and 1/2: (1 - 2)^2 and (1 - 1/2)^2, their mean.
    module = network(3, 2)
    with torch.no_grad():
        module.linear_layers[0].weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0.5, 0]]))
        loss = float(detachment(module, normal(4, 3)))
    assert loss == pytest.approx((1 + 0.25) / 2, abs=1e-5)


def test_detachment_takes_the_worst_layer():
    # A dead first layer: the Jacobian with respect to the input is 0, so the loss is at least 1
    # whatever the last layer's norm.
    module = network(3, 4, 2)
    with torch.no_grad():
        module.linear_layers[0].bias.fill_(-100)
        loss = float(detachment(module, normal(5, 3)))
    assert loss == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_detachment_gradient_by_finite_differences(activation):
    module, X = network(4, 5, 3, 2, activation=activation), normal(3, 4, seed=2)
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(
        detachment(module, X), parameters, allow_unused=True, materialize_grads=True
    )
    step = 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat = parameter.detach().view(-1)
        for i in range(len(flat)):
            centre = float(flat[i])
            values = []
            for shift in (step, -step):
                flat[i] = centre + shift
                values.append(float(detachment(module, X).detach()))
            flat[i] = centre
            slope = (values[0] - values[1]) / (2 * step)
            assert slope == pytest.approx(float(gradient.view(-1)[i]), abs=1e-6)


# --- the sum -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_loss_is_the_weighted_sum_of_its_terms(n_classes):
    module, X = network(4, 5, n_classes).float(), normal(6, 4).float()
    objective = MMDObjective(Perturbation(16, 0.7), 12, 0.4, 2.0, "unbiased", "sampled")
    terms = objective(module, X, StepRandom(0))
    assert objective.term_names == ("loss", "uniformity", "degeneracy", "detachment")
    loss, *parts = terms.tolist()
    assert loss == pytest.approx(parts[0] + 0.4 * parts[1] + 2.0 * parts[2], rel=1e-5)
    assert parts[2] == pytest.approx(float(detachment(module, X).detach()), rel=1e-5)


def test_gradient_of_the_sum_reaches_every_parameter():
    module, X = network(4, 5, 3, 2).float(), normal(6, 4).float()
    objective = MMDObjective(Perturbation(16, 0.7), 16, 0.4, 1.0, "unbiased", "sampled")
    objective(module, X, StepRandom(0))[0].backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def test_random_labels_are_drawn_for_each_step():
    module, X = network(4, 5, 2).float(), normal(6, 4).float()
    objective, random = RandomLabelObjective(), StepRandom(0)
    first, second = (float(objective(module, X, random.at(step)).detach()) for step in (0, 1))
    assert first != second
    assert first == float(objective(module, X, random.at(0)).detach())
    # log(2) is the cross entropy of a network that ignores its input.
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        loss = float(objective(module, X, random.at(0)))
    assert loss == pytest.approx(math.log(2), rel=1e-6)
