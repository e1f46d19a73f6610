"""The terms of the loss: definitions by loops, cases by hand, invariances, gradients."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn

from helpers import as_a_team_of, mlp, normal, seeded, uniform_simplex
from image_networks import MODULES
from module_zoo import (
    Convs,
    SequenceFirst,
    Words,
    double_network,
    images,
    network_of,
    rows,
    tokens,
    twice,
)
from sklearn_mmdinit._base.mlp import ACTIVATIONS
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.losses import coherence, coherence_kernel, degeneracy, detachment, uniformity
from sklearn_mmdinit.losses._uniformity import (
    _SMALLEST_BANDWIDTH,
    closed_form_mmd,
    interval_median,
    interval_mmd,
    median_bandwidth,
    mmd,
)
from sklearn_mmdinit.objective import loss_terms
from sklearn_mmdinit.training.config import CoherenceConfig, Config

# The maximum mean discrepancy


def explicit_mmd(p, u, gamma):
    """The definition, by loops over points, for one input."""

    def k(x, y):
        distance = float((x - y).square().sum())
        return sum(math.exp(-distance / (2 * (2.0**i * gamma) ** 2)) for i in range(-4, 5))

    def within(points):
        n = len(points)
        return sum(k(points[i], points[j]) for i in range(n) for j in range(n) if i != j) / (
            n * (n - 1)
        )

    between = sum(k(x, y) for x in p for y in u) / (len(p) * len(u))
    return within(p) - 2 * between + within(u)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_mmd_is_its_definition(n_classes):
    P, U = uniform_simplex(2, 6, n_classes), uniform_simplex(5, n_classes, seed=1)
    gamma = median_bandwidth(P, U)
    expected = [explicit_mmd(p, U, float(g)) for p, g in zip(P, gamma, strict=True)]
    np.testing.assert_allclose(mmd(P, U, gamma), expected, atol=1e-12)


@pytest.mark.parametrize("spread", [1e-5, 1e-2, 1.0])
def test_mmd_of_many_classes_is_that_of_exact_differences(spread, monkeypatch):
    # Predictions of float32 about one point, of which products alone would lose the distances.
    P, U = uniform_simplex(2, 30, 500).float(), uniform_simplex(40, 500, seed=1).float()
    P = torch.lerp(torch.eye(500)[:2, None], P, spread)
    gamma = median_bandwidth(P, U)
    values = mmd(P, U, gamma)
    monkeypatch.setitem(mmd.__globals__, "_MANY_CLASSES", math.inf)
    exact = P.double(), U.double()
    torch.testing.assert_close(gamma, median_bandwidth(*exact).float())
    torch.testing.assert_close(values, mmd(*exact, gamma.double()).float(), atol=2e-6, rtol=2e-6)


def test_mmd_of_a_point_mass_is_known():
    # All predictions at p = 1/2: E k(p, u) and E k(u, u') are integrals over the interval.
    gamma = 0.3

    def k(t):
        return sum(math.exp(-(t**2) / (2.0**i * gamma) ** 2) for i in range(-4, 5))

    between = 2 * integrate.quad(k, 0, 0.5)[0]
    within_u = 2 * integrate.quad(lambda t: (1 - t) * k(t), 0, 1, limit=200)[0]
    expected = 9 - 2 * between + within_u
    p, widths = torch.full((1, 50), 0.5, dtype=torch.float64), torch.tensor([gamma])
    for on_grid in (True, False):
        found = float(closed_form_mmd(p, widths, on_grid=on_grid))
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("spread", [1.0, 0.1])
def test_the_closed_form_from_few_pairs_is_that_on_the_grid(spread):
    p = (0.3 + spread * (uniform_simplex(4, 60, 2, seed=3)[..., 0] - 0.3)).requires_grad_()
    gamma = torch.tensor([0.2, 0.3, 0.5, 0.7], dtype=torch.float64)
    values = [closed_form_mmd(p, gamma, on_grid=on_grid) for on_grid in (True, False)]
    torch.testing.assert_close(*values, atol=2e-6, rtol=0)
    slopes = [torch.autograd.grad(value.sum(), p)[0] for value in values]
    torch.testing.assert_close(*slopes, atol=1e-5 * float(slopes[0].abs().max()), rtol=1e-5)


@pytest.mark.parametrize("law", ["uniform", "middle", "corner", "sharp", "edges"])
def test_the_interval_form_agrees_with_the_dense_one(law):
    draws = uniform_simplex(4, 60, 2, seed=3)[..., 0]
    p = {
        "uniform": draws,
        "middle": 0.4 + 0.2 * draws,
        "corner": 1e-3 * draws,
        "sharp": (20 * (draws - 0.5)).sigmoid(),
        "edges": draws.round(),
    }[law].requires_grad_()
    U = uniform_simplex(70, 2, seed=4)
    P = torch.stack([p, 1 - p], dim=-1)
    gamma = median_bandwidth(P, U)
    assert float(gamma.min()) > _SMALLEST_BANDWIDTH
    dense, fast = mmd(P, U, gamma), interval_mmd(p, U[:, 0], gamma)
    torch.testing.assert_close(fast, dense, atol=2e-6, rtol=0)
    weights = torch.linspace(1, 2, 4, dtype=torch.float64)
    (expected,) = torch.autograd.grad((dense * weights).sum(), p)
    (gradient,) = torch.autograd.grad((fast * weights).sum(), p)
    least = 1e-5 * float(expected.abs().max()) + 1e-8
    torch.testing.assert_close(gradient, expected, atol=least, rtol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_gradient_of_the_mmd_by_finite_differences(n_classes):
    P, U = uniform_simplex(2, 5, n_classes).requires_grad_(), uniform_simplex(6, n_classes, seed=1)
    gamma = median_bandwidth(P.detach(), U)
    assert torch.autograd.gradcheck(lambda P: mmd(P, U, gamma), P)


@pytest.mark.parametrize(("closed_form", "few"), [(False, 0), (True, 0), (True, 5)])
def test_gradient_on_the_interval_by_finite_differences(closed_form, few, monkeypatch):
    monkeypatch.setitem(closed_form_mmd.__globals__, "_FEW_POINTS", few)
    p = (uniform_simplex(2, 5, 2)[..., 0] * 0.9 + 0.05).requires_grad_()
    u, gamma = uniform_simplex(6, 2, seed=1)[:, 0], torch.tensor([0.3, 0.5], dtype=torch.float64)
    # The derivative is that of the interpolant, one order less exact than the value.
    assert torch.autograd.gradcheck(
        lambda p: closed_form_mmd(p, gamma) if closed_form else interval_mmd(p, u, gamma),
        p,
        atol=1e-5,
    )


@pytest.mark.parametrize(("n_p", "n_u"), [(2, 2), (7, 8), (2, 65), (64, 8)])
def test_median_is_the_lower_order_statistic_of_all_pairs(n_p, n_u):
    p, u = uniform_simplex(3, n_p, 2)[..., 0], uniform_simplex(n_u, 2, seed=1)[:, 0]
    fast = interval_median(p, u)
    for row, found in zip(p, fast, strict=True):
        points = torch.cat([row, u]).numpy()
        i, j = np.triu_indices(len(points), 1)
        distances = np.sort(math.sqrt(2) * np.abs(points[i] - points[j]))
        assert float(found) == pytest.approx(distances[(len(distances) - 1) // 2], abs=5e-5)
    dense = median_bandwidth(torch.stack([p, 1 - p], -1), torch.stack([u, 1 - u], -1))
    torch.testing.assert_close(fast, dense, atol=5e-5, rtol=0)


# Uniformity


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_uniformity_vanishes_for_uniform_predictions(n_classes):
    values = []
    for seed in range(10):
        P = uniform_simplex(200, 4, n_classes, seed=seed)
        values.append(float(uniformity(P, uniform_simplex(200, n_classes, seed=100 + seed))))
    # The median of distances between equal laws hardly depends on the sample.
    assert abs(np.mean(values)) < 0.01
    centre = torch.full((200, 4, n_classes), 1 / n_classes, dtype=torch.float64)
    assert float(uniformity(centre, uniform_simplex(200, n_classes))) > 1.0


def test_uniformity_falls_back_where_the_grid_is_too_coarse():
    # Few references among many equal predictions: the median distance is far below what the
    # grid resolves, and the dense form takes over.
    p = 0.5 + torch.linspace(0, 1e-3, 100, dtype=torch.float64)[:, None]
    P, U = torch.stack([p, 1 - p], -1), uniform_simplex(2, 2)
    gamma = median_bandwidth(P.transpose(0, 1), U)
    assert float(gamma) < 0.01
    expected = float(mmd(P.transpose(0, 1), U, gamma).mean())
    coarse = float(interval_mmd(p.mT, U[:, 0], gamma).mean())
    assert abs(coarse - expected) > 1e-2
    assert float(uniformity(P, U)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("spread", [0.8, 0.1, 1e-3])
def test_the_closed_form_holds_at_any_bandwidth(spread):
    # Two references beside 40 predictions that hardly differ: the median is that of the latter.
    p = 0.4 + spread * (uniform_simplex(40, 3, 2)[..., 0] - 0.5)
    U = torch.tensor([[0.3, 0.7], [0.9, 0.1]], dtype=torch.float64)
    P = torch.stack([p, 1 - p], -1)
    # The law itself by its quantiles; of them against each other a few will do.
    q, few = ((torch.arange(n, dtype=torch.float64) + 0.5) / n for n in (20_000, 50))
    gamma = median_bandwidth(P.transpose(0, 1), U)
    expected = []
    for column, width in zip(p.T, gamma, strict=True):

        def kernel(a, b, width=width):
            widths = width * 2.0 ** torch.arange(-4, 5, dtype=torch.float64)
            squares = 2 * (a[:, None] - b[None, :]).square()
            return sum((squares / (-2 * w * w)).exp() for w in widths).mean()

        within = (40 * kernel(column, column) - 9) / 39
        expected.append(within - 2 * kernel(column, q) + kernel(q, few))
    assert float(uniformity(P, U, closed_form=True)) == pytest.approx(np.mean(expected), rel=2e-3)
    assert torch.autograd.gradcheck(
        lambda p: closed_form_mmd(p, gamma, on_grid=False),
        p.mT.contiguous().requires_grad_(),
        eps=1e-4 * spread,
        atol=1e-4 / spread,
        rtol=1e-4,
    )


# Degeneracy


def test_degeneracy_by_hand():
    # Network 1: (1, 0) and (0, 1): each vertex at mean distance sqrt(2) / 2 = 1 / sqrt(2), loss 0.
    # Network 2: (1, 0) twice: the second vertex at sqrt(2), loss sqrt(2) - 1 / sqrt(2).
    # Network 3: (3/4, 1/4) twice: the second vertex at sqrt(2) 3/4.
    first = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.75, 0.75]], dtype=torch.float64)
    P = torch.stack([first, 1 - first], dim=-1)
    root = math.sqrt(2)
    expected = [0, root - 1 / root, 0.75 * root - 1 / root]
    for k in range(3):
        assert float(degeneracy(P[k : k + 1])) == pytest.approx(expected[k], abs=1e-6)
    assert float(degeneracy(P)) == pytest.approx(np.mean(expected), abs=1e-6)


def test_gradient_of_degeneracy_by_finite_differences():
    logits = normal(4, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: degeneracy(x.softmax(-1)), logits)


# Detachment, and the norms of Jacobians that it is of


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(5, 3), (5, 7), (5, 6, 4, 2), (5, 6, 4, 9)])
def test_norms_of_a_perceptron_against_autograd(widths, activation):
    network, X = double_network(mlp(*widths, activation=activation), rows(3, widths[0]))
    norms = network.jacobian_norms(X)
    assert norms.shape == (3, widths[-1], len(widths) - 1)
    function = type(ACTIVATIONS[activation]())()  # none in place
    first, *others = network.module.linears
    layers = [first, *(nn.Sequential(function, linear) for linear in others)]
    for b, x in enumerate(X):
        for i, layer in enumerate(layers):
            jacobian = torch.autograd.functional.jacobian(nn.Sequential(*layers[i:]), x)
            torch.testing.assert_close(norms[b, :, i], jacobian.norm(dim=1), atol=2e-6, rtol=1e-6)
            x = layer(x)


def in_groups(n_classes):
    first = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True)
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(144, n_classes))


OF_IMAGES = {"group norm": in_groups} | {
    name: MODULES[name]
    for name in ("convnet", "convnet+bn", "residual", "transformer", "transformer+multihead")
}


@pytest.mark.parametrize("n_classes", [3, 40])
@pytest.mark.parametrize("name", ["mlp", *OF_IMAGES])
def test_norms_with_respect_to_the_input_against_autograd(name, n_classes):
    """Statistics of a mini-batch are constants."""
    if name == "mlp":
        module, X = mlp(6, 7, 5, n_classes, batch_norm=True), rows(5)
    else:
        module, X = seeded(lambda: OF_IMAGES[name](n_classes)), images(5)
    network, batch = double_network(module, X)
    norms = network.jacobian_norms(batch)
    still, seen = copy.deepcopy(network.module).eval(), {}
    layers = [n for n in still.modules() if isinstance(n, nn.BatchNorm1d | nn.BatchNorm2d)]
    for norm in layers:
        norm.register_forward_pre_hook(lambda norm, args: seen.update({norm: args[0]}))
    # A layer's statistics are known once those before it are in place.
    for norm in layers:
        still(batch)
        own = seen[norm].detach()
        axes = (0, *range(2, own.ndim))
        variance, mean = torch.var_mean(own, dim=axes, correction=0)
        norm.running_var.copy_(variance), norm.running_mean.copy_(mean)
    for b in range(2):
        jacobian = torch.autograd.functional.jacobian(lambda x: still(x[None])[0], batch[b])
        torch.testing.assert_close(norms[b, :, 0], jacobian.flatten(1).norm(dim=1))


def test_an_inner_layer_of_any_shape_counts_with_all_its_numbers():
    network, batch = double_network(seeded(lambda: MODULES["convnet"](3)), images(3))
    norms, module = network.jacobian_norms(batch), network.module

    def rest(h):  # what follows the second convolution
        h = nn.functional.max_pool2d(h[None].relu(), 2)
        return module.fc2(module.fc1(h.flatten(1)).relu())[0]

    h = module.conv2(nn.functional.max_pool2d(module.conv1(batch).relu(), 2))
    for b in range(3):
        jacobian = torch.autograd.functional.jacobian(rest, h[b].detach())
        torch.testing.assert_close(norms[b, :, 2], jacobian.flatten(1).norm(dim=1))
    assert norms.shape == (3, 3, 4)  # the input, two convolutions and a linear layer


def test_there_is_no_jacobian_with_respect_to_integers():
    network, batch = double_network(seeded(Words), tokens())
    norms = network.jacobian_norms(batch)
    assert norms.shape == (4, 3, 2)  # the embedding and the layer of its tokens
    torch.autograd.backward(detachment(norms))
    assert network.module.table.weight.grad.abs().sum() > 0
    alone = nn.Sequential(nn.Embedding(7, 3), nn.Flatten())
    network, batch = double_network(alone, tokens(length=1))
    with pytest.raises(ValueError, match="set detachment_weight=0"):
        network.jacobian_norms(batch)


def test_examples_are_found_on_any_axis():
    network, batch = double_network(seeded(SequenceFirst), rows(5, 8))
    alone = torch.cat([network.jacobian_norms(batch[b : b + 1]) for b in range(5)])
    torch.testing.assert_close(network.jacobian_norms(batch), alone)


class Experts(nn.Module):
    """Layers of which each sees some of the rows."""

    def __init__(self):
        super().__init__()
        self.experts, self.last = nn.ModuleList(nn.Linear(6, 5) for _ in range(2)), nn.Linear(5, 3)

    def forward(self, x):
        hidden, own = x.new_zeros(len(x), 5), (x[:, 0] > 0).long()
        for k, expert in enumerate(self.experts):
            index = torch.nonzero(own == k)[:, 0]
            hidden = hidden.index_copy(0, index, expert(x[index]))
        return self.last(hidden.tanh())


def test_jacobians_do_not_depend_on_the_rows_that_a_module_was_looked_at_with():
    X, found = rows(20), []
    assert 0 < (X[:, 0] > 0).sum() < 20
    for order in (np.argsort(-X[:, 0]), np.argsort(np.abs(X[:, 0]))):  # first those of one expert
        network, _ = double_network(seeded(Experts), X[order])
        found.append(network.jacobian_norms(torch.from_numpy(X).double()))
    torch.testing.assert_close(*found)


def test_running_statistics_are_updated_once():
    network, batch = double_network(seeded(lambda: MODULES["convnet+bn"](3)), images())
    other = copy.deepcopy(network.module)
    other(batch)
    network.jacobian_norms(batch)
    torch.testing.assert_close(dict(network.module.state_dict()), dict(other.state_dict()))
    assert int(network.module.norm1.num_batches_tracked) == 1


DIFFERENTIATED = {
    "mlp": (lambda: mlp(6, 5, 3, 2, activation="gelu"), rows(3)),
    "relu": (lambda: mlp(6, 5, 3, 2), rows(3)),
    "many classes": (lambda: mlp(6, 5, 3, 7, activation="gelu"), rows(3)),
    "convolutions": (Convs, rows(3, 12)),
    "twice": (twice, rows(3)),
    "one layer": (lambda: nn.Sequential(nn.Linear(6, 3)), rows(3)),
    "one layer of many classes": (lambda: nn.Sequential(nn.Linear(6, 9)), rows(3)),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradient_of_detachment_by_finite_differences(name):
    make, X = DIFFERENTIATED[name]
    network, batch = double_network(seeded(make), X)
    parameters = list(network.module.parameters())
    ways = [normal(*own.shape, seed=i) for i, own in enumerate(parameters)]

    def loss(step=0.0):  # after a step along the ways
        with torch.no_grad():
            for parameter, way in zip(parameters, ways, strict=True):
                parameter.add_(way, alpha=step)
        return detachment(network.jacobian_norms(batch))

    slopes = torch.autograd.grad(loss(), parameters, allow_unused=True, materialize_grads=True)
    expected = sum((slope * way).sum() for slope, way in zip(slopes, ways, strict=True))
    found = (loss(1e-6) - loss(-2e-6)).detach() / 2e-6
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_detachment_by_hand():
    # Rows of norm 2 and 1/2: (1 - 2)^2 and (1 - 1/2)^2, their mean.
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0.5, 0]]))
    network, batch = double_network(nn.Sequential(layer), rows(4, 3))
    assert float(detachment(network.jacobian_norms(batch)).detach()) == pytest.approx(0.625)


def test_detachment_takes_the_worst_layer():
    # A dead first layer: the Jacobian with respect to the input is 0, so the loss is at least 1
    # whatever the last layer's norm.
    network, batch = double_network(mlp(3, 4, 2), rows(5, 3))
    with torch.no_grad():
        network.module.linears[0].bias.fill_(-100)
        norms = network.jacobian_norms(batch)
    assert (norms < 1e-5).all()
    assert float(detachment(norms)) == pytest.approx(1.0, abs=1e-4)


class Heads(nn.Module):
    """A trunk, and for each class a head of its own."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 1)) for _ in range(3)
        )

    def forward(self, X):
        Z = self.trunk(X)
        return torch.cat([head(Z) for head in self.heads], dim=1)


def test_a_class_has_no_part_in_the_heads_of_others():
    network, batch = double_network(seeded(Heads), rows(7, 6))
    norms = network.jacobian_norms(batch)
    # The input, the trunk and the inner layer of each head; the class alone that owns it differs.
    inner = norms[..., 2:7:2]
    for i in range(3):
        others = [j for j in range(3) if j != i]
        assert (norms[:, i, :2] != 1.0).all()
        assert (inner[:, i, i] != 1.0).all()
        assert (inner[:, i, others] == 1.0).all()
    term = detachment(norms)
    (slope,) = torch.autograd.grad(term, [network.module.trunk[0].weight])
    assert 0.0 < float(term.detach()) < 0.999
    assert float(slope.abs().max()) > 0.0


# Coherence


@pytest.mark.parametrize("scale", [0.1, math.sqrt(0.5)])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_kernel_is_the_correlation_of_sampled_perturbations_of_the_last_layer(n_classes, scale):
    H, draws = normal(6, 5).relu(), 100_000
    weights = normal(draws, 5, seed=1) * scale / math.sqrt(5)
    biases = normal(draws, 1, seed=2) * scale / math.sqrt(n_classes)
    moves = weights @ H.mT + biases
    # The standard error of a correlation is at most 1 / sqrt(draws) = 0.0032.
    found = coherence_kernel(H, n_classes)
    np.testing.assert_allclose(found, np.corrcoef(moves.numpy().T), atol=0.015)


def test_without_a_bias_the_kernel_is_the_cosine_at_any_scale():
    H = normal(6, 4)
    H[2] = 0
    rest = [0, 1, 3, 4, 5]
    cosine = nn.functional.cosine_similarity(H[rest, None], H[None, rest], dim=-1)
    for scale in (1e-3, 1.0, 1e3):
        scaled = (scale * H).requires_grad_()
        C = coherence_kernel(scaled, math.inf)
        torch.testing.assert_close(C[rest][:, rest].detach(), cosine, rtol=1e-5, atol=1e-5)
        assert not C[2].any()
        (gradient,) = torch.autograd.grad(C.sum(), scaled)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("width", [4, 30])
def test_coherence_is_the_mean_over_pairs_written_out(width):
    H, n = normal(10, width), 5
    C = coherence_kernel(H, 2)
    related = [(i, i + n) for i in range(n)] + [(i + n, i) for i in range(n)]
    between = [
        float(C[i, j]) ** 2
        for i in range(2 * n)
        for j in range(2 * n)
        if i != j and (i, j) not in related
    ]
    along = [float(C[i, i + n]) for i in range(n)]
    expected = 1 - np.mean(along) + 3.0 * np.mean(between)
    assert float(coherence(H, 2, 3.0)) == pytest.approx(expected)


def test_activations_too_large_for_their_squares_are_noticed():
    H = normal(8, 3).float() * 1e25
    assert coherence(H, 3).isnan()
    assert coherence_kernel(H, math.inf).isnan().all()


@pytest.mark.parametrize("width", [3, 30])
def test_gradient_of_coherence_by_finite_differences(width):
    H = normal(8, width).requires_grad_()
    assert torch.autograd.gradcheck(lambda H: coherence(H, 3, 2.0), H)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_hidden_rows_in_parts_have_the_gradient_of_all_at_once(n_threads):
    network, X = double_network(mlp(6, 9, 7, 2, activation="gelu"), rows(520))
    learned = list(network.module.parameters())[:4]  # the last layer has no part in it
    linears, activations = network.module.linears, network.module.activations
    whole = activations[1](linears[1](activations[0](linears[0](X))))
    with as_a_team_of(n_threads):
        H = network.hidden(X)
        own = torch.autograd.grad(coherence(H, 2, 2.0), learned)
    torch.testing.assert_close(H, whole)
    torch.testing.assert_close(own, torch.autograd.grad(coherence(whole, 2, 2.0), learned))


def test_hidden_rows_of_batch_norm_take_the_statistics_of_all():
    network, X = double_network(mlp(6, 9, 2, batch_norm=True), rows(300))
    pre = network.module.linears[0](X)
    norm = network.module.norms[0]
    variance, mean = torch.var_mean(pre, dim=0, correction=0)
    expected = ((pre - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias).relu()
    torch.testing.assert_close(network.hidden(X), expected)


# Their sum


def config(**params):
    defaults = {"learning_rate_init": 1e-3, "batch_size": 6, "max_iter": 1, "window": 1}
    weights = {"uniformity_weight": 1.0, "degeneracy_weight": 0.4, "detachment_weight": 2.0}
    drawn = {"n_classes": 2, "n_perturbations": 16, "perturbation_scale": 0.7}
    return Config(**{**defaults, **weights, **drawn, **params})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_loss_is_the_weighted_sum_of_its_terms(n_classes):
    network, X = network_of(mlp(4, 5, 3, n_classes), rows(6, 4))
    own = config(n_classes=n_classes, uniformity_weight=0.0)
    terms = loss_terms(network, X, StepRandom(0), own)
    assert own.term_names == ("loss", "uniformity", "degeneracy", "detachment")
    assert own.rows_in_flight == 6 * 16
    loss, *parts = terms.tolist()
    assert parts[0] != 0, "terms of weight 0 are recorded all the same"
    assert loss == pytest.approx(0.4 * parts[1] + 2.0 * parts[2], rel=1e-5)
    norms = network.jacobian_norms(X)
    assert parts[2] == pytest.approx(float(detachment(norms).detach()), rel=1e-5)
    terms[0].backward()
    for name, parameter in network.module.named_parameters():
        assert float(parameter.grad.abs().max()) > 0, name


def test_the_fourth_term_is_added_to_the_papers_on_the_first_starts():
    network, X = network_of(mlp(4, 5, 3, 2), rows(12, 4))
    own = config(batch_size=3, coherence=CoherenceConfig(4.0, 2.0, 1.0, 6), closed_form=True)
    assert own.term_names == ("loss", "uniformity", "degeneracy", "detachment", "coherence")
    assert own.rows_in_flight == 12 + 3 * 16
    loss, *terms, coherent = loss_terms(network, X, StepRandom(0), own).tolist()
    paper = config(batch_size=3, closed_form=True)
    expected = loss_terms(network, X[:3], StepRandom(0), paper).tolist()
    assert terms == pytest.approx(expected[1:])
    found = float(coherence(network.hidden(X), 2, 2.0).detach())
    assert coherent == pytest.approx(found, rel=1e-5)
    assert loss == pytest.approx(expected[0] + 4.0 * coherent, rel=1e-5)


def test_a_third_term_of_no_weight_is_not_computed(monkeypatch):
    network, X = network_of(seeded(lambda: MODULES["convnet+bn"](2)), images(6))
    own = config(detachment_weight=0.0)
    monkeypatch.setattr(type(network), "jacobian_norms", None)
    assert own.term_names == ("loss", "uniformity", "degeneracy")
    loss, *parts = loss_terms(network, X, StepRandom(0), own).tolist()
    assert loss == pytest.approx(parts[0] + 0.4 * parts[1], rel=1e-5)
    assert int(network.module.norm1.num_batches_tracked) == 1, "its pass followed the rows"


def test_alone_the_fourth_term_draws_nothing():
    network, X = network_of(mlp(4, 5, 2), rows(12, 4))
    none = dict.fromkeys(("uniformity_weight", "degeneracy_weight", "detachment_weight"), 0.0)
    own = config(coherence=CoherenceConfig(4.0, 2.0, 1.0, 6), **none)
    assert (own.term_names, own.rows_in_flight) == (("loss", "coherence"), 12)
    loss, coherent = loss_terms(network, X, None, own).tolist()
    assert loss == pytest.approx(4.0 * coherent)
