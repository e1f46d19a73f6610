"""Perturbed copies: all samplers have the law of copies with parameters of their own."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from helpers import LARGE, DoubleRandom, mlp, normal, seeded, threads
from image_networks import MODULES, ConvNet, PatchTransformer, ResidualNet, flat_perceptron
from module_zoo import (
    SCALE,
    Bare,
    Centred,
    Convs,
    Halved,
    Router,
    SequenceFirst,
    Volumes,
    Words,
    double_network,
    draw,
    images,
    network_of,
    profile_of,
    rows,
    tied,
    tokens,
    twice,
)
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit._base.threads import Buffers
from sklearn_mmdinit.networks import copies
from sklearn_mmdinit.networks import functional as sampling
from sklearn_mmdinit.networks.functional import (
    SAMPLERS,
    chosen_samplers,
    perturbed_logits,
)
from sklearn_mmdinit.networks.gram import (
    _regularised_cholesky,
    gram_noise,
    semidefinite_cholesky,
)
from sklearn_mmdinit.networks.hooks import own_output, replaced
from sklearn_mmdinit.networks.layers import layer_type_of, parameter_stds


def sample(network, X, n_copies, sampler, seed=0, scale=SCALE):
    """In single precision, where layers by gram draw and add in one go."""
    return perturbed_logits(network, X, n_copies, scale, StepRandom(seed), sampler)


def slopes_of(network, logits):
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    loss = (logits.softmax(-1) * weights).sum()
    learned = [parameter for parameter in network.module.parameters() if parameter.requires_grad]
    return torch.autograd.grad(loss, learned, allow_unused=True, materialize_grads=True)


def assert_same_law(a, b, margin=0.15):
    """Means, covariances across the mini-batch for the same epsilon, laws of single outputs."""
    n = len(a)
    a, b = (x.detach().reshape(n, -1).double().numpy() for x in (a, b))
    spread = np.sqrt((a.var(0) + b.var(0)) / n)
    assert np.all(np.abs(a.mean(0) - b.mean(0)) < 5 * spread)
    covariance = np.cov(a.T), np.cov(b.T)
    scale = np.sqrt(np.outer(np.diag(covariance[0]), np.diag(covariance[0])))
    # The kurtosis of a deep network's output exceeds a normal's: a wide margin.
    assert np.abs(covariance[0] - covariance[1]).max() < (margin * scale).max()
    for column in range(a.shape[1]):
        assert stats.ks_2samp(a[:, column], b[:, column]).pvalue > 1e-4


# The law of a perceptron's copies, in single precision

PERCEPTRONS = {
    "relu": (mlp(6, 5, 3), rows(4)),
    "batch norm": (mlp(6, 5, 3, batch_norm=True), rows(4)),
    "duplicate rows": (mlp(6, 5, 3), rows(2)[[0, 1, 0, 0]]),
    "more rows than inputs": (mlp(2, 3, 2), rows(9, 2)),
    "zero input": (mlp(6, 5, 3), np.zeros((3, 6), np.float32)),
    "no hidden layer": (mlp(6, 3), rows(1)),
}


@pytest.mark.parametrize("case", PERCEPTRONS)
def test_samplers_agree_in_law(case):
    network, X = network_of(*PERCEPTRONS[case])
    with torch.no_grad():
        functional = sample(network, X, 6000, "functional", seed=1)
        for sampler in ("direct", "gram"):
            assert_same_law(sample(network, X, 6000, sampler, seed=2), functional)


def explicit(module, X, seed, n_copies):
    """Logits of the networks theta0 + E with the most likely E behind the noise by gram."""
    random, module, X = StepRandom(seed), module.double(), X.double()
    H = X.expand(n_copies, -1, -1)
    for i, linear in enumerate(module.linears):
        n_out, n_in = linear.weight.shape
        with torch.no_grad():
            C = SCALE**2 / n_in * H @ H.mT + SCALE**2 / n_out
            Z = random.normal(n_copies, len(X), n_out).double()
            solved = torch.linalg.solve(C, torch.linalg.cholesky(C) @ Z)
            E = SCALE**2 / n_in * (H.mT @ solved).mT
            e = SCALE**2 / n_out * solved.sum(1, keepdim=True)
        H = H @ (linear.weight + E).mT + linear.bias + e
        if i < len(module.linears) - 1:
            H = H.relu()
    return H


def test_gram_is_the_direct_form_at_the_most_likely_perturbation():
    module = mlp(7, 9, 8, 3)
    network, X = network_of(module, rows(5, 7))
    logits = sample(network, X, 4, "gram", seed=3)
    own = slopes_of(network, logits)
    expected = explicit(module, X, 3, 4)
    assert_close(logits.double(), expected, rtol=1e-4, atol=1e-5)
    theirs = slopes_of(replace(network, module=module), expected)
    assert_close([g.double() for g in own], theirs, rtol=1e-3, atol=1e-4)


def mean_slopes(network, X, sampler, seed):
    # A loss that is not linear in epsilon, its mean over copies a Monte Carlo.
    loss = sample(network, X, 60, sampler, seed).softmax(-1)[..., 0].square().mean()
    own = torch.autograd.grad(loss, list(network.module.parameters()), allow_unused=True)
    return torch.cat([g.flatten() for g in own if g is not None])


AVERAGED = {
    **{name: PERCEPTRONS[name] for name in ("duplicate rows", "more rows than inputs")},
    "convolutions": (Convs, rows(2, 12)),
    "words": (Words, tokens(3)),
}


@pytest.mark.parametrize("case", AVERAGED)
def test_gradients_by_gram_are_right_on_average(case):
    make, X = AVERAGED[case]
    network, batch = network_of(make if isinstance(make, nn.Module) else seeded(make), X)
    direct, gram = (
        torch.stack([mean_slopes(network, batch, s, seed) for seed in range(24)])
        for s in ("direct", "gram")
    )
    spread = ((direct.var(0) + gram.var(0)) / 24).sqrt()
    assert float(((direct.mean(0) - gram.mean(0)).abs() / (spread + 1e-6)).max()) < 5.5
    # Conditional expectation: the variance over all parameters cannot be larger, up to the
    # error of two estimates.
    assert float(gram.var(0).sum()) < 2 * float(direct.var(0).sum())


# The law of any module's copies


def frozen():
    """A ConvNet whose first normalisation was frozen, in the way that is common."""
    module = MODULES["convnet+bn"](3)
    module.norm1.running_mean.fill_(0.3)
    module.norm1.running_var.fill_(2.0)
    module.norm1.eval()
    return module


def hooked():
    """Layers whose inputs and outputs are changed by hooks of the module's own."""
    first, norm, last = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
    first.register_forward_pre_hook(lambda layer, args: (0.5 * args[0],))
    first.register_forward_hook(lambda layer, args, output: 0.2 * output + 0.1)
    norm.register_forward_hook(lambda layer, args, output: output.square())
    last.register_forward_hook(lambda layer, args, output: output.tanh())
    return nn.Sequential(first, norm, nn.Tanh(), last)


def partly_frozen():
    module = flat_perceptron(3, 6)
    module[1].requires_grad_(False)
    module[3].bias.requires_grad_(False)
    return module


def of_tokens():
    """A linear layer of rows in two dimensions."""
    parts = nn.Unflatten(1, (2, 3)), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4, bias=False)
    return nn.Sequential(*parts, nn.Flatten(), nn.ReLU(inplace=True), nn.Linear(8, 3))


class Overwritten(nn.Module):
    """ReLUs in place whose outputs are read twice, and one of a part of an array."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3, padding=1)
        self.c, self.d = nn.Linear(72, 72), nn.Linear(72, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        maps = self.relu(self.a(x))
        flat = (maps + self.relu(self.b(maps)) * maps).flatten(1)
        hidden = self.c(flat)
        self.relu(hidden[:, ::2])
        return self.d(flat + hidden * hidden)


def in_groups():
    convolutions = nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 8, 3, groups=4)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(8 * 16, 3))


ZOO = {
    **{name: (lambda make=make: make(3), images()) for name, make in MODULES.items()},
    "mlp": (lambda: mlp(6, 5, 4, 3, batch_norm=True), rows()),
    "twice": (twice, rows()),
    "tied": (tied, rows()),
    "words": (Words, tokens()),
    "convolutions": (Convs, rows(width=12)),
    "volumes": (Volumes, rows(width=12)),
    "tokens": (of_tokens, rows()),
    "groups": (in_groups, images()),
    "frozen norm": (frozen, images()),
    "frozen layers": (partly_frozen, images()),
    "hooked": (hooked, rows()),
    "in place": (lambda: Halved(in_place=True), rows()),
    "overwritten": (Overwritten, images()),
    "ReLU first": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)), rows()),
}
del ZOO["transformer+multihead"]  # the functional sampler alone can: see below


def of_zoo(name):
    make, X = ZOO[name]
    return double_network(seeded(make), X)


@pytest.mark.parametrize("name", ZOO)
def test_direct_is_the_functional_form_on_the_same_draws(name):
    # Layers are called in the order of their names: both ask for the same normals.
    network, batch = of_zoo(name)
    assert network.why_functional == ""
    direct, functional = (draw(network, batch, 3, sampler) for sampler in ("direct", "functional"))
    assert_close(direct, functional, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(direct[0], direct[1], atol=1e-3)
    own, theirs = (slopes_of(network, logits) for logits in (direct, functional))
    assert_close(own, theirs, rtol=1e-8, atol=1e-9)


# Small: by gram a convolution takes a matrix of its pixels by its pixels.
TINY = {
    "residual": (lambda: ResidualNet(3, 2, 1), images(side=4)),
    "transformer": (lambda: PatchTransformer(3, 4, 1, patch=2, side=4), images(side=4)),
    **{name: ZOO[name] for name in ("frozen layers", "tied", "words", "convolutions")},
}


@pytest.mark.parametrize("name", TINY)
def test_gram_has_the_law_of_the_functional_form(name):
    make, X = TINY[name]
    network, batch = network_of(seeded(make), X[:3])
    assert "gram" in chosen_samplers(network, "gram", 3).values()
    with torch.no_grad():
        gram = sample(network, batch, 1200, "gram", seed=1)
        functional = sample(network, batch, 1200, "functional", seed=2)
    assert_same_law(gram, functional, margin=0.25)


def test_functional_copies_are_those_of_a_loop():
    for make, X in ((Bare, rows()), (Centred, rows()), (SequenceFirst, rows(width=8))):
        network, batch = double_network(seeded(make), X)
        logits = draw(network, batch, 3, "auto", seed=4)
        parameters, random = dict(network.module.named_parameters()), DoubleRandom(4)
        stds = parameter_stds(network.module, SCALE)
        assert list(stds) == list(parameters)
        eps = {n: random.normal(3, *parameters[n].shape) * std for n, std in stds.items()}
        for k in range(3):
            own = {name: value + eps[name][k] for name, value in parameters.items()}
            alone = torch.func.functional_call(network.module, own, (batch,))
            assert_close(logits[k], alone, rtol=1e-9, atol=1e-10)


def test_the_law_of_each_parameter_is_the_documented_one():
    stds = parameter_stds(seeded(Words), 2.0)
    assert stds["table.weight"].flatten().tolist() == [0.0, *[2.0] * 6], "the padding's row stays"
    assert stds["mix.weight"] == 2.0 / math.sqrt(5)
    assert stds["head.bias"] == 2.0 / math.sqrt(3)
    stds = parameter_stds(seeded(Convs), 2.0)
    assert stds["b.weight"] == 2.0 / math.sqrt(2 * 3), "of a group's channels"
    assert stds["c.bias"] == 2.0 / math.sqrt(4)
    stds = parameter_stds(Bare(), 2.0)
    assert (stds["weight"], stds["shift"]) == (2.0 / math.sqrt(6), 2.0 / math.sqrt(4))
    assert stds["factor"] == 2.0
    # Of what is drawn by parameters alone too.
    assert parameter_stds(nn.ConvTranspose1d(8, 2, 2), 2.0)["weight"] == 2.0 / math.sqrt(16)
    for table in (nn.Embedding(5, 16, 0, max_norm=9.0), nn.EmbeddingBag(5, 16, padding_idx=0)):
        assert parameter_stds(table, 2.0)["weight"].flatten().tolist() == [0.0, *[2.0] * 4]
    attention = parameter_stds(nn.MultiheadAttention(8, 2), 1.0)
    assert attention["in_proj_weight"] == attention["out_proj.weight"] == 1 / math.sqrt(8)
    assert attention["in_proj_bias"] == 1 / math.sqrt(24)
    assert not any(name.startswith("norms") for name in parameter_stds(mlp(4, 3, 2), 1.0))


class Narrow(nn.Sequential):
    """Computes its layers in half precision."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x).float()


@pytest.mark.parametrize("sampler", ["gram", "direct", "functional"])
def test_a_module_may_compute_in_half_precision(sampler):
    layers = seeded(lambda: [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2)])
    network, X = network_of(Narrow(*layers), images())
    plain, _ = network_of(nn.Sequential(*layers), images())
    assert network.why_functional == ""
    own, wide = (sample(net, X, 50, sampler) for net in (network, plain))
    assert_close(own, wide, rtol=0.05, atol=0.05)
    theirs = slopes_of(plain, wide)
    for slope, other in zip(slopes_of(network, own), theirs, strict=True):
        assert float((slope - other).norm()) < 0.05 * float(other.norm())


LAYERS = {
    "linear": (nn.Linear(5, 4), (5,)),
    "linear without a bias, of tokens": (nn.Linear(5, 4, bias=False), (3, 2, 5)),
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, dilation=2, groups=2), (4, 9)),
    "conv1d, same": (nn.Conv1d(2, 3, 4, padding="same", bias=False), (2, 5)),
    "conv2d": (nn.Conv2d(3, 4, (2, 3), padding=(1, 0), padding_mode="reflect"), (3, 5, 6)),
    "conv2d, one channel a group": (nn.Conv2d(4, 8, 3, groups=4), (4, 5, 4)),
    "conv3d": (nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), (2, 3, 4, 3)),
}


# Of padding that is not the same on both sides.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_patches_times_weights_are_the_outputs(name):
    layer, shape = LAYERS[name]
    kind, H = layer_type_of(layer), torch.randn(2, *shape)
    patches, expected = kind.patches(layer, H), layer(H)
    weight = layer.weight.flatten(1).unflatten(0, (patches.shape[2], -1))
    out = torch.einsum("npgi,goi->npgo", patches, weight).flatten(2)
    out = out if layer.bias is None else out + layer.bias
    positions = expected.movedim(kind.channels, -1).shape
    found = out.view(positions).movedim(-1, kind.channels)
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 20_000])
def test_the_covariance_of_noise_by_gram_is_known(n):
    patches = normal(1, 2, 3, 2, 4)  # 2 examples, 3 positions, 2 groups
    copies = patches.expand(n, -1, -1, -1, -1)
    if n > 1:
        copies = copies.clone().requires_grad_()
    noise = gram_noise(copies, 20_000, 6, (0.5, 0.3), DoubleRandom(0))
    noise = noise.detach().view(20_000, 6, 6)  # copies, examples and positions, units
    for unit, group in ((0, 0), (5, 1)):
        own = patches[0, :, :, group].flatten(0, 1)
        expected = 0.25 * own @ own.mT + 0.09
        found = torch.from_numpy(np.cov(noise[:, :, unit].T.numpy()))
        assert_close(found, expected, rtol=0.05, atol=0.03)
    between = (noise[:, :, 0] * noise[:, :, 1]).mean(0)
    assert float(between.abs().max()) < 0.05 * float(noise.var())


# Factors of matrices that may be singular


def test_singular_matrices_leave_the_regular_ones_beside_them_alone():
    A = normal(4, 5, 5)
    A[2, :, 3:] = 0
    C, regular = A @ A.mT, [0, 1, 3]
    L = semidefinite_cholesky(C)
    assert torch.equal(L[regular], torch.linalg.cholesky(C[regular]))
    assert_close(L @ L.mT, C, atol=2e-5 * float(C.abs().max()), rtol=0)


@pytest.mark.parametrize("zeros", [[], [0], [1, 2], range(6)])
@pytest.mark.parametrize("rank", [1, 8])
def test_the_factor_of_singular_matrices_is_near_and_finite(rank, zeros):
    # Rows of zeros: of a dead layer without a bias, or blank ones.
    A = normal(30, 6, rank).float()
    A[:, list(zeros)] = 0.0
    C = A @ A.mT
    for L in (semidefinite_cholesky(C), _regularised_cholesky(C)):
        bound = 2e-5 * C.diagonal(dim1=-2, dim2=-1).amax(1) + 1e-29
        assert ((L @ L.mT - C).abs().amax((1, 2)) <= bound).all()
        # What a row adds to a gradient is its inverse times itself.
        inverse = torch.linalg.solve_triangular(L, torch.eye(6).expand(30, -1, -1), upper=False)
        assert (inverse @ A).isfinite().all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("n_rows", "rank"), [(32, 16), (32, 1), (1024, 1), (1024, 3)])
def test_a_factorisation_that_broke_down_is_never_taken_for_one(n_rows, rank, scale):
    # Rows that repeat, in float32, where the pivots that fail are rounding of any sign.
    for seed in range(4):
        H = (normal(n_rows // 2, rank, seed=seed).float() * scale)[torch.arange(n_rows) // 2]
        C = (H @ H.mT)[None]
        L = semidefinite_cholesky(C)
        assert float((L @ L.mT - C).abs().max() / C.abs().max()) < 1e-3


# Which layers are drawn how


def test_auto_takes_the_cheaper_sampler_of_each_layer():
    def auto(module, X, n_rows):
        return chosen_samplers(network_of(module, X)[0], "auto", n_rows)

    # 9 rows: gram for the layer with 20 inputs, direct for the one with 4.
    assert auto(mlp(20, 4, 2), rows(width=20), 9) == {"linears.0": "gram", "linears.1": "direct"}
    found = auto(seeded(lambda: ConvNet(3)), images(), 4)
    assert found == {"conv1": "direct", "conv2": "direct", "fc1": "gram", "fc2": "direct"}
    # Few tokens, and a wide layer.
    wide = nn.Sequential(nn.Unflatten(1, (2, 6)), nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 300))
    wide.append(nn.Flatten()).append(nn.Linear(600, 2))
    assert auto(wide, rows(width=12), 4) == {"1": "direct", "3": "gram", "5": "gram"}


# Parts, memory and threads


def limited(monkeypatch, a_part=60, kept=1 << 28):
    """Parts of a copy or two, as of networks much larger than a test's."""
    monkeypatch.setattr(sampling, "_NUMBERS_IN_CACHE", a_part)
    monkeypatch.setattr(sampling, "_NUMBERS_A_PART", a_part)
    monkeypatch.setattr(sampling, "_NUMBERS_KEPT", kept)


def plan_of(network):
    (plan,) = network.plans.values()
    return plan


@pytest.mark.parametrize("kept", [0, 1 << 28])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("batch_norm", [False, True])
def test_threads_change_nothing(sampler, batch_norm, kept, monkeypatch):
    limited(monkeypatch, kept=kept)
    module, results = mlp(7, 9, 8, 3, batch_norm=batch_norm), []
    network, X = network_of(module, rows(5, 7), sampler)
    functional = sampler == "functional"
    for n_threads in (1, 2, 3, 1):
        with threads(n_threads), network.team(LARGE, "cpu"):
            logits = sample(network, X, 7, sampler, seed=3)
            # Clones: the next step overwrites the buffers.
            values, own = logits.detach().clone(), slopes_of(network, logits)
            with torch.no_grad():
                again = sample(network, X, 7, sampler, seed=3)
            assert_close(again, values, rtol=1e-5, atol=1e-5)
        results.append((values, own))
    plan = plan_of(network)
    assert 1 < plan.n_parts <= 7
    assert plan.n_kept == (0 if kept == 0 else plan.n_parts)
    for values, own in results[1:]:
        # Copies with parameters of their own leave the threads to PyTorch.
        assert_close(values, results[0][0], rtol=0, atol=1e-6 * functional)
        assert_close(own, results[0][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kept", [0, 1 << 28])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["mlp", "in place", "convolutions", "words"])
def test_parts_one_after_the_other_are_the_whole(name, sampler, kept, monkeypatch):
    make, X = ZOO[name]
    network, batch = network_of(seeded(make), X)
    whole, _ = network_of(seeded(make), X)
    with monkeypatch.context() as patch:
        limited(patch, 600 if name in ("convolutions", "words") else 60, kept)
        logits = sample(network, batch, 7, sampler)
        own = slopes_of(network, logits)
    n_parts = plan_of(network).n_parts
    assert 1 < n_parts <= 7
    bounds = [7 * i // n_parts for i in range(n_parts + 1)]
    pieces = []
    for part, start, stop in zip(StepRandom(0).split(n_parts), bounds, bounds[1:], strict=False):
        # Memory of its own: another step would overwrite what the first one has left.
        own_memory = replace(whole, buffers=Buffers(), plans={})
        piece = perturbed_logits(own_memory, batch, stop - start, SCALE, part, sampler)
        pieces.append(piece)
    expected = torch.cat(pieces)
    assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert_close(own, slopes_of(whole, expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sampler", ["gram", "direct"])
def test_gradients_may_be_computed_by_other_threads_than_outputs(sampler, monkeypatch):
    # Wide enough that threads are inside of each other's parts.
    limited(monkeypatch, a_part=1)
    module = mlp(16, 256, 256, 3)
    network, X = network_of(module, rows(64, 16), sampler)

    def gradients(n_threads):
        with threads(1), network.team(LARGE, "cpu"):
            logits = sample(network, X, 8, sampler, seed=3)
        with threads(n_threads), network.team(LARGE, "cpu"):
            return slopes_of(network, logits)

    alone = [own.clone() for own in gradients(1)]
    for _ in range(5):
        assert_close(gradients(4), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sampler", ["gram", "direct"])
def test_the_next_step_overwrites_nothing_that_is_still_used(sampler):
    network, X = network_of(mlp(7, 9, 9, 2), rows(5, 7))
    fresh, _ = network_of(mlp(7, 9, 9, 2), rows(5, 7))

    def gradients(seed):
        network.module.zero_grad(set_to_none=True)
        sample(network, X, 6, sampler, seed).square().sum().backward()
        return [parameter.grad for parameter in network.module.parameters()]

    first = gradients(0)
    before = [gradient.clone() for gradient in first]
    gradients(1)
    assert all(map(torch.equal, first, before))
    with torch.no_grad():
        assert torch.equal(sample(network, X, 6, sampler, 5), sample(fresh, X, 6, sampler, 5))


class SideBySide(nn.Module):
    """A layer that two parts of a row go through, neither after the other."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        a, b = [self.first(part).tanh() for part in x.split(3, dim=1)]
        return self.last((self.shared(a) * self.shared(b)).tanh())


def test_gradients_of_calls_side_by_side_have_memory_of_their_own(monkeypatch):
    network, X = network_of(seeded(SideBySide), rows())
    own = slopes_of(network, sample(network, X, 5, "auto"))
    monkeypatch.setattr(copies, "_is_fused", lambda *args: False)
    assert_close(own, slopes_of(network, sample(network, X, 5, "auto")), rtol=1e-4, atol=1e-6)


# Normalisation, and no trace


@pytest.mark.parametrize("sampler", ["direct", "functional"])
@pytest.mark.parametrize("name", ["mlp", "convnet+bn", "volumes"])
def test_each_copy_normalises_by_its_own_rows_and_leaves_no_trace(name, sampler):
    network, batch = of_zoo(name)
    before = {key: value.clone() for key, value in network.module.state_dict().items()}
    many = draw(network, batch, 3, sampler)
    # Without noise each copy is the module itself, in training on the same rows.
    none = draw(network, batch, 3, sampler, scale=1e-300)
    after = network.module.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    alone = network.module(batch)
    assert_close(none, alone.expand(3, -1, -1), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(many[0], many[1])


@pytest.mark.parametrize("sampler", ["direct", "functional"])
def test_a_frozen_normalisation_is_the_same_for_all_copies_and_rows(sampler):
    network, batch = of_zoo("frozen norm")
    assert network.module.norm2.training
    network.module.norm2.eval()  # so that no row has to do with another
    whole, part = (draw(network, X, 3, sampler) for X in (batch, batch[:2]))
    assert_close(whole[:, :2], part)


@pytest.mark.parametrize("sampler", ["auto", "direct", "functional"])
def test_a_layer_with_two_names_keeps_its_parameters(sampler):
    layer = seeded(lambda: nn.Linear(6, 6))
    module = nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))
    init = MMDInitializer(module=module, n_perturbations=4, max_iter=2, sampler=sampler)
    assert np.isfinite(init.fit(rows(64)).best_loss_)  # whose steps come one after the other


@pytest.mark.parametrize("sampler", ["auto", "direct", "functional"])
def test_nothing_stays_in_the_module_even_after_an_error(sampler):
    network, batch = of_zoo("convnet+bn")
    kept = {part: dict(vars(part)) for part in network.module.modules()}
    fused = torch.backends.mha.get_fastpath_enabled()
    draw(network, batch, 2, sampler)
    with pytest.raises(RuntimeError):  # whatever the layer says of images of another size
        draw(network, batch[:, :, :5, :5], 2, sampler)
    for part, before in kept.items():
        assert vars(part).keys() == before.keys()
        assert not {**part._forward_hooks, **part._forward_pre_hooks}
        assert all(value is before[name] for name, value in vars(part).items())
    assert network.module.norm1.running_mean is not None
    assert torch.backends.mha.get_fastpath_enabled() == fused


# What copies in one pass cannot serve


def normed():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))


def centred_with_a_head_of_zeros():
    """In which nothing shows of what comes before the head."""
    module = Centred()
    nn.init.zeros_(module.head.weight)
    return module


class Codebook(nn.Module):
    """Looks for the nearest word of a table, which autograd does not see."""

    def __init__(self):
        super().__init__()
        self.code, self.book, self.head = nn.Linear(6, 3), nn.Embedding(5, 3), nn.Linear(3, 3)

    def forward(self, x):
        code = self.code(x)
        nearest = self.book(torch.cdist(code, self.book.weight).argmin(1))
        return self.head(code + (nearest - code).detach())


class Tenth(nn.Conv1d):
    """Changes its weights on the way."""

    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight / 10, bias)


def by_frequency():
    return nn.Sequential(
        nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(20, 3)
    )


def changed_convolution():
    return nn.Sequential(nn.Unflatten(1, (2, 3)), Tenth(2, 4, 2), nn.Flatten(), nn.Linear(8, 3))


REASONS = {
    "multihead": (lambda: MODULES["transformer+multihead"](3), images(), "in_proj"),
    "parameters of no layer": (Bare, rows(), "'weight', 'shift', 'factor'"),
    "rows that depend on each other": (Centred, rows(), "rows depend"),
    "examples on another axis": (SequenceFirst, rows(width=8), "than the first"),
    "control flow by values": (Router, rows(), "looks at values"),
    "layers that are changed": (normed, rows(), "parametrizations.weight.original"),
    "rows depend, before a head of zeros": (centred_with_a_head_of_zeros, rows(), "rows depend"),
    "a table that is searched": (Codebook, rows(), "'book.weight'"),
    "a convolution that is changed": (changed_convolution, rows(), "'1.weight'"),
    "indices that are counted": (by_frequency, tokens(), "'0.weight'"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_one_pass_cannot_serve_is_functional(name):
    make, X, words = REASONS[name]
    network, batch = network_of(seeded(make), X)
    assert words in network.why_functional
    assert set(chosen_samplers(network, "auto", 4).values()) == {"functional"}
    assert sample(network, batch, 3, "auto").shape[:2] == (3, len(batch))
    with pytest.raises(ValueError, match=rf"sampler='gram' cannot perturb .*{words}"):
        profile_of(seeded(make), X, "gram")


class InPieces(nn.Module):
    """Goes through a mini-batch some rows at a time."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.cat([self.body(piece) for piece in x.split(16)]).relu())


def test_what_a_look_does_not_show_is_told_before_it_does_harm():
    init = MMDInitializer(module=InPieces, n_perturbations=8, batch_size=16, max_iter=1)
    with pytest.raises(RuntimeError, match=r"'body' sees 16 rows of 128 .* come in pieces"):
        init.fit(rows(32))
    layer = nn.Linear(6, 3)
    with replaced({layer: own_output}), pytest.raises(ValueError, match="one input, Linear gets 2"):
        layer(torch.ones(1, 6), torch.ones(1, 6))


class Checkpointed(nn.Module):
    """Computes a layer again for its gradient."""

    def __init__(self, width=6):
        super().__init__()
        self.first, self.last = nn.Linear(width, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False).relu())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.body(x.view(len(x), 2, 3))[0][:, -1])


def test_copies_beyond_vmap_are_drawn_one_after_the_other():
    with pytest.warns(UserWarning, match=r"one after the other.*'body' \(GRU\)") as told:
        network, batch = network_of(seeded(Recurrent), rows())
    assert (len(told), network.one_by_one) == (1, True)
    logits = sample(network, batch, 3, "auto")
    assert logits[0].sub(logits[1]).abs().max() > 0.1
    found = torch.autograd.grad(logits.sum(), list(network.module.parameters()))
    assert all(slope.abs().max() > 0 for slope in found)
    with pytest.warns(UserWarning, match="one after the other"):
        MMDInitializer(module=Recurrent(), n_perturbations=2, coherence="auto", max_iter=1).fit(
            rows()
        )


def test_copies_one_after_the_other_are_those_at_once():
    network, batch = network_of(mlp(6, 5, 3), rows())
    at_once = sample(network, batch, 3, "functional")
    slowly = sample(replace(network, one_by_one=True, plans={}), batch, 3, "functional")
    assert_close(slowly, at_once)


class Drawing(Router):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


@pytest.mark.parametrize("sampler", ["auto", "functional"])
def test_what_no_sampler_can_do_is_said_with_the_layer(sampler):
    with pytest.raises(ValueError, match=r"fails under .*vmap"):
        profile_of(Drawing(), rows(), sampler)
    # Beside a GRU, whose copies are computed one by one, the gradient would not fail but be wrong.
    for module in (Checkpointed(), nn.Sequential(Recurrent(), Checkpointed(3))):
        with pytest.raises(ValueError, match=r"computed again .*, as torch.utils.checkpoint does"):
            profile_of(module, rows(), sampler)
    with pytest.raises(ValueError, match="no parameters to perturb"):
        profile_of(nn.Linear(6, 3).requires_grad_(False), rows(), sampler)


# Types of layers


class Diagonal(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x * self.weight + self.shift


def test_layers_that_are_not_known():
    module = nn.Sequential(nn.Linear(6, 5), Diagonal(5), nn.Tanh(), nn.Linear(5, 3))
    assert "['1.weight', '1.shift'] act elsewhere" in profile_of(module, rows()).why_functional
    loud = type("Loud", (nn.Linear,), {"forward": lambda self, x: x.exp()})
    assert layer_type_of(loud(2, 2)) is None, "it does something else"
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert layer_type_of(normed) is None, "its weight is no parameter"
    assert layer_type_of(nn.Embedding(4, 3, max_norm=1.0)) is None
    layer = nn.Linear(2, 2)
    assert layer_type_of(layer) is not None
    layer.forward = lambda x: x
    assert layer_type_of(layer) is None
