"""The terms of the loss: definitions by loops, cases by hand, derivatives by differences."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn

from helpers import assert_slopes_are_differences, normal, seeded, uniform_simplex
from module_zoo import ZOO, looked_at, of_zoo, rows, tokens
from sklearn_mmdinit.losses import (
    CoherenceLoss,
    coherence,
    degeneracy,
    detachment,
    uniformity,
)
from sklearn_mmdinit.losses._shared import kernel_and_slope
from sklearn_mmdinit.losses._uniformity import (
    _SMALLEST_BANDWIDTH,
    interval_median,
    interval_mmd,
    mmd,
)
from sklearn_mmdinit.networks.noise import NORMALIZATIONS
from sklearn_mmdinit.networks.passes import TAPPED, jacobian_norms, update_running_statistics

# What all terms refuse

P2 = uniform_simplex(6, 4, 2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: degeneracy(P2[0]), r"P must be floats of shape .*float64 of shape \(4, 2\)"),
        (lambda: degeneracy(P2.long()), "P must be floats of shape .*int64"),
        (lambda: degeneracy(2 * P2), "P must hold probabilities.* a sum over classes of 2"),
        (lambda: uniformity(P2.log(), P2[0]), r"P must hold probabilities.*logits\.softmax\(-1\)"),
        (lambda: uniformity(P2, P2), r"U must be of shape .* \(M, d\).* and \(6, 4, 2\)"),
        (lambda: degeneracy(P2[:, :0]), r"P must be floats of shape .*\(6, 0, 2\)"),
        (lambda: uniformity(P2[:1], P2[0]), r"K and M of at least 2, got \(1, 4, 2\)"),
        (lambda: uniformity(P2, P2[0, :1]), r"K and M of at least 2, .* and \(1, 2\)"),
        (lambda: detachment(P2[0]), r"norms must be of shape .*got \(4, 2\)"),
        (lambda: coherence(P2), r"H must be floats of shape .*\(6, 4, 2\)"),
        (lambda: coherence(P2[:3, 0]), "H must have 2 n rows for n >= 2 positive pairs, got 3"),
    ],
)
def test_wrong_shapes_and_values_are_refused_by_name(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()


def test_terms_in_half_precision_are_those_in_single():
    P, U = uniform_simplex(20, 4, 3).float(), uniform_simplex(20, 3).float()
    terms = (lambda P: uniformity(P, U), P), (degeneracy, P)
    for loss, given in (*terms, (coherence, normal(8, 5).float())):
        expected = loss(given)
        for half in (torch.float16, torch.bfloat16):
            found = loss(given.to(half))
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, expected, atol=0.02, rtol=0.02)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(loss(given), expected)


def kernel(squared, gamma):
    """The paper's kernel, a sum of nine Gaussians of the squared distances."""
    return sum(torch.exp(-0.5 * squared / (2.0**i * gamma).square()) for i in range(-4, 5))


def mmd_by_definition(P, U, gamma):
    """MMD (B,) of predictions (B, K, d) and samples (M, d) with bandwidths gamma (B,)."""

    def total(X, Y):
        squared = (X[:, :, None] - Y[:, None]).square().sum(-1)
        return kernel(squared, gamma[:, None, None]).sum(dim=(1, 2))

    n_p, n_u, U = P.shape[1], len(U), U.expand(len(P), *U.shape)
    within_p = (total(P, P) - 9 * n_p) / (n_p * (n_p - 1))
    within_u = (total(U, U) - 9 * n_u) / (n_u * (n_u - 1))
    return within_p - 2 * total(P, U) / (n_p * n_u) + within_u


def median_bandwidth(P, U):
    """Lower median (B,) of all pairwise distances of predictions (B, K, d) and samples (M, d)."""
    pairs = torch.stack([torch.pdist(torch.cat([p, U.to(p)]).double()) for p in P.detach()])
    return pairs.median(dim=1).values.to(P.dtype)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_mmd_is_its_definition(n_classes):
    P, U = uniform_simplex(2, 6, n_classes), uniform_simplex(5, n_classes, seed=1)
    gamma = median_bandwidth(P, U)
    np.testing.assert_allclose(mmd(P, U, gamma), mmd_by_definition(P, U, gamma), atol=1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 2e-5), (torch.float64, 1e-12)])
def test_the_fast_kernel_and_its_slope_are_those_of_the_definition(dtype, error):
    squared = torch.linspace(0, 2, 400, dtype=torch.float64).requires_grad_()
    for gamma in (1e-3, 0.1, 0.7):
        width = torch.tensor(gamma, dtype=torch.float64)
        values = kernel(squared, width)
        (slopes,) = torch.autograd.grad(values.sum(), squared)
        fast = kernel_and_slope(squared.detach().to(dtype), width.to(dtype))
        for found, expected in zip(fast, (values, slopes), strict=True):
            largest = float(expected.detach().abs().max())
            torch.testing.assert_close(
                found.double(), expected.detach(), atol=error * largest, rtol=0
            )


@pytest.mark.parametrize("spread", [1e-5, 1e-2, 1.0])
def test_mmd_of_many_classes_is_that_of_exact_differences(spread):
    # Predictions of float32 about one point, of which products alone would lose the distances.
    P, U = uniform_simplex(2, 30, 500).float(), uniform_simplex(40, 500, seed=1).float()
    P = torch.lerp(torch.eye(500)[:2, None], P, spread)
    gamma = median_bandwidth(P, U)
    expected = mmd_by_definition(P.double(), U.double(), gamma.double())
    torch.testing.assert_close(mmd(P, U, gamma), expected.float(), atol=2e-6, rtol=2e-6)


def test_mmd_of_a_point_mass_tends_to_its_integral():
    # All predictions at p = 1/2: E k(p, u) and E k(u, u') are integrals over the interval.
    gamma, n = 0.3, 400

    def k(t):
        return sum(math.exp(-(t**2) / (2.0**i * gamma) ** 2) for i in range(-4, 5))

    between = 2 * integrate.quad(k, 0, 0.5)[0]
    within_u = 2 * integrate.quad(lambda t: (1 - t) * k(t), 0, 1, limit=200)[0]
    expected = 9 - 2 * between + within_u
    u = (torch.arange(n, dtype=torch.float64) + 0.5) / n  # quantiles of the uniform distribution
    p, widths = torch.full((1, n), 0.5, dtype=torch.float64), torch.tensor([gamma]).double()
    P, U = torch.stack([p, 1 - p], -1), torch.stack([u, 1 - u], -1)
    for found in (mmd(P, U, widths), interval_mmd(p, u, widths)):
        assert float(found) == pytest.approx(expected, abs=0.05)


# What has another distribution than uniform draws: in the middle, in a corner, sharp.
OTHERS = (lambda p: 0.4 + 0.2 * p, lambda p: 1e-3 * p, lambda p: (20 * (p - 0.5)).sigmoid())


@pytest.mark.parametrize("change", [torch.clone, *OTHERS, torch.round])
def test_the_interval_form_agrees_with_the_dense_one(change):
    p = change(uniform_simplex(4, 60, 2, seed=3)[..., 0]).requires_grad_()
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


GAMMA = torch.tensor([0.3, 0.5], dtype=torch.float64)
FORMS = {
    "two classes": (lambda P: mmd(P, uniform_simplex(6, 2, seed=1), GAMMA), (2, 5, 2)),
    "four classes": (lambda P: mmd(P, uniform_simplex(6, 4, seed=1), GAMMA), (2, 5, 4)),
    "interval": (lambda P: interval_mmd(P[..., 0], uniform_simplex(6, 2)[:, 0], GAMMA), (2, 5, 2)),
    "degeneracy": (lambda P: degeneracy(P), (4, 3, 3)),
    "detachment": (detachment, (4, 3, 3)),
    # Without their last column rows of the simplex may change in every direction.
    "coherence of 12 units": (lambda P: coherence(P[:, :-1], 2.0), (8, 13)),
    "coherence of 3 units": (lambda P: coherence(P[:, :-1], 2.0), (8, 4)),
}


@pytest.mark.parametrize("name", FORMS)
def test_derivatives_by_finite_differences(name):
    form, shape = FORMS[name]
    logits = normal(*shape, seed=2).requires_grad_()
    # On the grid the slope is that of the interpolant, one order less exact than the value.
    grid = 1e-5 if name == "interval" else 1e-7

    def loss(logits):
        return form(logits.softmax(-1))

    assert torch.autograd.gradcheck(loss, logits, atol=grid)


def test_what_is_differentiable_once_says_so():
    P = uniform_simplex(6, 3, 3).requires_grad_()
    for loss in (uniformity(P, uniform_simplex(5, 3)), coherence(P[..., 0])):
        with pytest.raises(RuntimeError, match="differentiable once; call backward without"):
            torch.autograd.grad(loss, P, create_graph=True)


@pytest.mark.parametrize(("n_p", "n_u"), [(2, 2), (7, 8), (2, 65), (64, 8)])
def test_median_is_the_lower_order_statistic_of_all_pairs(n_p, n_u):
    p, u = uniform_simplex(3, n_p, 2)[..., 0], uniform_simplex(n_u, 2, seed=1)[:, 0]
    expected = median_bandwidth(torch.stack([p, 1 - p], -1), torch.stack([u, 1 - u], -1))
    torch.testing.assert_close(interval_median(p, u), expected, atol=5e-5, rtol=0)


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


def with_statistics_of(module, X):
    """A copy whose batch norms have the statistics of a mini-batch, as constants."""
    still = copy.deepcopy(module)
    # A layer's statistics are known once those before it are in place.
    for norm in [n for n in still.modules() if isinstance(n, nn.modules.batchnorm._BatchNorm)]:
        if norm.training:
            inputs = []
            handle = norm.register_forward_pre_hook(lambda norm, args, to=inputs: to.append(*args))
            norm.eval()
            still(X.clone())
            handle.remove()
            axes = [axis for axis in range(inputs[0].ndim) if axis != 1]
            variance, mean = torch.var_mean(inputs[0].detach(), dim=axes, correction=0)
            norm.running_mean, norm.running_var = mean, variance
    return still


def norms_by_loops(module, X, n_classes):
    """Norms of Jacobian rows, one example, class and layer at a time."""
    still = with_statistics_of(module, X)
    tapped, handed_on = [], [None]

    def tap(layer, args, output):
        if not isinstance(layer, TAPPED):
            if args[0] is not handed_on[0] or args[0]._version:
                return None
            tapped.pop()  # a normalization follows at once
        tapped.append(output)
        handed_on[0] = output.clone()  # a layer may work in place
        return handed_on[0]

    for layer in still.modules():
        if isinstance(layer, (*TAPPED, *NORMALIZATIONS)):
            layer.register_forward_hook(tap)
    rows = []
    for x in X:
        for i in range(n_classes):
            tapped.clear()
            x = x[None] if x.ndim == X.ndim - 1 else x
            if x.is_floating_point():
                x = x.detach().requires_grad_()
            logit = still(x.clone())[0, i]
            inputs = [x] * x.is_floating_point() + tapped[:-1]
            slopes = torch.autograd.grad(logit, inputs, allow_unused=True)
            rows += [[float(slope.norm()) for slope in slopes if slope is not None]]
    return torch.tensor(rows, dtype=torch.float64).view(len(X), n_classes, -1)


def norms_of(module, X, info):
    statistics = update_running_statistics(module, X)
    return jacobian_norms(module, X, info.n_classes, statistics)


# Those whose rows are passed one by one, or whose norms count as 1, have tests of their own.
LOOPED = sorted({*ZOO} - {"hooked", "experts", "zero input", "dead layer"})


@pytest.mark.parametrize("name", LOOPED)
def test_norms_of_jacobians_are_those_of_loops(name):
    module, info, X = of_zoo(name, "functional")
    found = norms_of(module, X, info)
    torch.testing.assert_close(
        found, norms_by_loops(module, X, info.n_classes), atol=2e-6, rtol=1e-6
    )


def test_there_is_no_jacobian_with_respect_to_integers():
    module, info, X = looked_at(nn.Sequential(nn.Embedding(7, 3), nn.Flatten()), tokens(length=1))
    with pytest.raises(ValueError, match="set detachment_weight=0"):
        norms_of(module, X, info)


@pytest.mark.parametrize(
    "name",
    ["mlp", "mlp+bn", "no hidden layer", "convolutions", "convnet+bn", "twice", "transformer"],
)
def test_gradient_of_detachment_by_finite_differences(name):
    module, info, X = of_zoo(name)

    def loss():
        return detachment(norms_of(module, X, info))

    assert_slopes_are_differences(loss, module)


def test_detachment_by_hand():
    # Rows of norm 2 and 1/2: (1 - 2)^2 and (1 - 1/2)^2, their mean.
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, 0, 0], [0, 0.5, 0]]))
    module, info, X = looked_at(nn.Sequential(layer), rows(4, 3))
    found = detachment(norms_of(module, X, info))
    assert float(found.detach()) == pytest.approx(0.625)


@pytest.mark.parametrize(("norm", "sampler"), [(nn.Identity, "gram"), (nn.LayerNorm, "functional")])
def test_a_class_that_is_detached_from_the_input_counts(norm, sampler):
    net = seeded(lambda: nn.Sequential(nn.Linear(6, 5), norm(5), nn.ReLU(), nn.Linear(5, 4)))
    with torch.no_grad():
        net[3].weight[0] = 0.0
    module, info, X = looked_at(net, rows(7, 6), double=True)
    norms = norms_of(module, X, info)
    assert info.sampler == sampler
    assert float(norms[:, 0].detach().max()) < 1e-5
    assert float(norms[:, 1:].detach().min()) > 1e-3


def cosines(H):
    """C of activations, written out."""
    G = H - H.mean(dim=0)
    if (H >= 0).all():
        G = torch.where(G > 0, G, 0.2 * G)
    return nn.functional.cosine_similarity(G[:, None], G[None, :], dim=-1)


@pytest.mark.parametrize("positive", [False, True])
def test_features_are_differences_from_the_mean_at_any_scale_and_place(positive):
    H = normal(10, 4)
    H, sign = (H.exp(), 1.0) if positive else (H, -1.0)  # shifts keep the sign
    expected = coherence(H)
    for scale, shift in ((1e-3, 0.0), (1.0, 100.0), (1e3, 5.0)):
        scaled = (scale * (H + sign * shift)).requires_grad_()
        found = coherence(scaled)
        torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-4)
        (gradient,) = torch.autograd.grad(found, scaled)
        assert gradient.isfinite().all()
    H[0] = H[1:].mean(dim=0)  # now the mean of all: its norm is 0, and no NaN comes of it
    (gradient,) = torch.autograd.grad(coherence(H.requires_grad_()), H)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("activation", [torch.tanh, torch.relu])
@pytest.mark.parametrize("width", [4, 30])
def test_coherence_is_the_mean_over_pairs_written_out(width, activation):
    H, n = activation(normal(10, width)), 5
    C = cosines(H)
    # Of different examples: neither one row twice nor the two of a pair.
    between = [C[i, j] ** 2 for i, j in np.ndindex(C.shape) if i % n != j % n]
    expected = 1 - np.mean([C[i, i + n] for i in range(n)]) + 3.0 * np.mean(between)
    assert float(coherence(H, 3.0)) == pytest.approx(expected)
    assert CoherenceLoss(3.0)(*H.chunk(2)) == coherence(H, 3.0)
    with pytest.raises(ValueError, match=r"the same shape, got \[3, 4\] and \[1, 4\]"):
        CoherenceLoss()(torch.ones(3, 4), torch.ones(1, 4))


def test_activations_too_large_for_their_squares_are_noticed():
    H = normal(8, 3).float() * 1e25
    assert coherence(H).isnan()


@pytest.mark.parametrize("value", [0.0, 1.0, 100.3, -7.7, 1e4])
def test_constant_activations_tell_nothing_apart(value):
    assert float(coherence(torch.full((32, 16), value))) == pytest.approx(1.0, abs=0.02)


def test_the_default_type_of_tensors_does_not_change_the_loss():
    H = torch.randn(32, 16, generator=torch.Generator().manual_seed(0)).relu()
    expected = coherence(H)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert coherence(H) == expected
    finally:
        torch.set_default_dtype(torch.float32)
