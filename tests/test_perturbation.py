"""Perturbed networks: two samplers of one law, which is that of networks perturbed by hand."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from helpers import as_a_team_of, assert_slopes_are_differences, normal, seeded, slopes_of
from module_zoo import BEYOND_VMAP, CHAINS, OTHERS, SCALE, ZOO, of_zoo, perceptron, rows
from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.networks import gram, noise
from sklearn_mmdinit.networks.functional import functional_logits
from sklearn_mmdinit.networks.gram import gram_layers, semidefinite_cholesky
from sklearn_mmdinit.networks.info import inspect_module, perturbed_logits
from sklearn_mmdinit.networks.noise import parameter_stds


def draw(module, info, X, n_copies, seed=0, scale=SCALE):
    return perturbed_logits(module, info, X, n_copies, scale, StepRandom(seed))


def loss_of(logits):
    """A number that depends on every logit in its own way, and is not linear."""
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    return (logits.softmax(-1) * weights).sum()


def by_hand(module, X, n_copies, seed=0, scale=SCALE):
    """Copies of a module with noise added to their parameters, and logits of each."""
    random, networks = StepRandom(seed), [copy.deepcopy(module) for _ in range(n_copies)]
    moving = dict(module.named_parameters())
    for name, std in parameter_stds(module, scale).items():
        eps = random.normal(n_copies, *moving[name].shape).mul_(std)
        for network, own in zip(networks, eps, strict=True):
            dict(network.named_parameters())[name].data.add_(own)
    for network in networks:
        # The largest singular value stays that of theta0, without a step of its iteration.
        for part in network.modules():
            part.training &= not hasattr(part, "_u")
    return networks, torch.stack([network(X.clone()) for network in networks])


@pytest.mark.parametrize("name", ZOO)
def test_functional_networks_are_copies_perturbed_by_hand(name):
    module, info, X = of_zoo(name, "functional")
    assert info.by_vmap == (name not in BEYOND_VMAP)
    logits = draw(module, info, X, 3)
    networks, expected = by_hand(module, X, 3)
    assert_close(logits, expected, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)
    of_copies = [slopes_of(loss_of(expected), copy, retain_graph=True) for copy in networks]
    total = [sum(slopes) for slopes in zip(*of_copies, strict=True)]
    assert_close(slopes_of(loss_of(logits), module), total, rtol=1e-8, atol=1e-9)


def test_the_law_of_each_parameter_is_the_documented_one():
    stds = parameter_stds(seeded(ZOO["words"][0]), 2.0)
    assert stds["table.weight"].flatten().tolist() == [0.0, *[2.0] * 6], "the padding's row stays"
    assert stds["mix.weight"] == 2.0 / math.sqrt(5)
    assert stds["head.bias"] == 2.0 / math.sqrt(3)
    stds = parameter_stds(seeded(ZOO["convolutions"][0]), 2.0)
    assert stds["b.weight"] == 2.0 / math.sqrt(2 * 3), "of a group's channels"
    assert stds["c.weight"] == 2.0 / math.sqrt(6 * 3), "of a transposed convolution"
    assert stds["c.bias"] == 2.0 / math.sqrt(4)
    stds = parameter_stds(ZOO["bare parameters"][0](), 2.0)
    assert (stds["weight"], stds["shift"]) == (2.0 / math.sqrt(6), 2.0 / math.sqrt(4))
    assert stds["factor"] == 2.0
    for table in (nn.Embedding(5, 16, 0, max_norm=9.0), nn.EmbeddingBag(5, 16, padding_idx=0)):
        assert parameter_stds(table, 2.0)["weight"].flatten().tolist() == [0.0, *[2.0] * 4]
    attention = parameter_stds(nn.MultiheadAttention(8, 2), 1.0)
    assert attention["in_proj_weight"] == attention["out_proj.weight"] == 1 / math.sqrt(8)
    assert attention["in_proj_bias"] == 1 / math.sqrt(24)
    norms = nn.Sequential(nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.BatchNorm1d(4))
    assert parameter_stds(norms, 1.0) == {}
    assert list(parameter_stds(perceptron().requires_grad_(False), 1.0)) == []


def assert_same_law(a, b, margin=0.15):
    """Means, covariances across the mini-batch for the same epsilon, laws of single outputs."""
    n = len(a)
    a, b = (x.detach().reshape(n, -1).double().numpy() for x in (a, b))
    spread = np.sqrt((a.var(0) + b.var(0)) / n)
    assert np.all(np.abs(a.mean(0) - b.mean(0)) < 5 * spread + 1e-9)
    covariance = np.cov(a.T), np.cov(b.T)
    scale = np.sqrt(np.outer(np.diag(covariance[0]), np.diag(covariance[0])))
    # The kurtosis of a deep network's output exceeds a normal's: a wide margin.
    assert np.abs(covariance[0] - covariance[1]).max() < (margin * scale).max()
    for column in range(a.shape[1]):
        assert stats.ks_2samp(a[:, column], b[:, column]).pvalue > 1e-4


@pytest.mark.parametrize("name", CHAINS)
def test_gram_has_the_law_of_functional(name):
    module, info, X = of_zoo(name, "gram", double=False)
    assert info.sampler == "gram"
    others = replace(info, sampler="functional")
    with torch.no_grad():
        expected = draw(module, others, X, 6000, seed=1)
        assert_same_law(draw(module, info, X, 6000, seed=2), expected)
        # Inputs that are the outputs of other layers take another way through the sampler.
    assert_same_law(draw(module, info, X.requires_grad_(), 6000, seed=3), expected)


def test_both_normalise_each_network_alone_in_evaluation_mode_too():
    # A batch norm without running statistics follows the mini-batch in every mode.
    module = perceptron(nn.BatchNorm1d(5, track_running_stats=False), nn.ReLU()).eval()
    info, X = inspect_module(module, torch.from_numpy(rows())), torch.from_numpy(rows())
    with torch.no_grad():
        expected = draw(module, replace(info, sampler="functional"), X, 4000, seed=1)
        assert_same_law(draw(module, info, X, 4000, seed=2), expected)


def most_likely(layers, X, n_copies, seed=0):
    """For each linear layer the most likely epsilon behind the noise that gram draws."""
    random, H, noises = StepRandom(seed), X.detach().expand(n_copies, *X.shape), {}
    for layer in layers:
        if isinstance(layer, nn.Linear):
            n_out, n_in = layer.weight.shape
            law = [
                SCALE**2 / n if p is not None and p.requires_grad else 0.0
                for p, n in ((layer.weight, n_in), (layer.bias, n_out))
            ]
            C = law[0] * H @ H.mT + law[1]
            Z = random.normal(n_copies, len(X), n_out).double()
            solved = torch.linalg.solve(C, torch.linalg.cholesky(C) @ Z)
            noises[layer] = law[0] * (H.mT @ solved).mT, law[1] * solved.sum(1, keepdim=True)
        H = passed(layer, H, noises)
    return noises


def passed(layer, H, noises):
    """Outputs (K, B, n) of the networks of these noises."""
    if isinstance(layer, nn.Linear):
        weight, bias = noises[layer]
        H = H @ (layer.weight + weight).mT + bias
        return H if layer.bias is None else H + layer.bias
    if isinstance(layer, nn.Flatten):
        return H.flatten(2)
    return torch.stack([layer(own.clone()) for own in H])


@pytest.mark.parametrize(
    "name",
    ["mlp", "mlp+bn", "no hidden layer", "flatten first", "elementwise first", "without biases"],
)
def test_gram_is_the_network_of_the_most_likely_perturbation(name):
    """Its gradients are those at this epsilon, by finite differences too."""
    module, info, X = of_zoo(name, "gram")
    layers = gram_layers(module)
    with torch.no_grad():
        noises = most_likely(layers, X, 3)

    def explicit(X=X):
        H = X.expand(3, *X.shape)
        for layer in layers:
            H = passed(layer, H, noises)
        return H

    logits, expected = draw(module, info, X, 3), explicit()
    assert_close(logits, expected, rtol=1e-8, atol=1e-8)
    slopes = slopes_of(loss_of(logits), module)
    assert_close(slopes, slopes_of(loss_of(expected), module), rtol=1e-6, atol=1e-8)
    assert_slopes_are_differences(lambda: loss_of(explicit()), module, slopes)
    given = X.clone().requires_grad_()
    found, wanted = (
        torch.autograd.grad(loss_of(logits), given)
        for logits in (draw(module, info, given, 3), explicit(given))
    )
    assert_close(found, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "name", ["mlp+bn", "convolutions", "transformer", "lstm", "tied", "more rows than inputs"]
)
def test_gradients_of_drawn_weights_by_finite_differences(name):
    # With more rows than inputs gram draws weights too.
    module, info, X = of_zoo(name, "gram" if name == "more rows than inputs" else "functional")

    def loss():
        return loss_of(draw(module, info, X, 3))

    assert_slopes_are_differences(loss, module)


@pytest.mark.parametrize("name", ["duplicate rows", "more rows than inputs", "frozen parameters"])
def test_gradients_of_gram_are_those_of_functional_on_average(name):
    module, info, X = of_zoo(name, "gram", double=False)

    def mean_slopes(info, seed):
        # A loss that is not linear in epsilon; its mean over networks is an estimate.
        loss = draw(module, info, X, 60, seed).softmax(-1)[..., 0].square().mean()
        return torch.cat([slope.flatten() for slope in slopes_of(loss, module)])

    functional, gram = (
        torch.stack([mean_slopes(way, seed) for seed in range(24)])
        for way in (replace(info, sampler="functional"), info)
    )
    spread = ((functional.var(0) + gram.var(0)) / 24).sqrt()
    assert float(((functional.mean(0) - gram.mean(0)).abs() / (spread + 1e-6)).max()) < 5.5
    # A conditional expectation has no larger variance, up to the error of two estimates.
    assert float(gram.var(0).sum()) < 2 * float(functional.var(0).sum())


@pytest.mark.parametrize("zeros", [[], [0], [1, 2], range(6)])
@pytest.mark.parametrize("rank", [1, 8])
def test_the_factor_of_singular_matrices_is_near_and_finite(rank, zeros):
    # Rows of zeros: of a dead layer without a bias, or blank ones.
    A = normal(30, 6, rank).float()
    A[:, list(zeros)] = 0.0
    C = A @ A.mT
    for L in (semidefinite_cholesky(C), gram._regularised_cholesky(C)):
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


@pytest.fixture(params=["kept", "computed again"])
def in_chunks(request, monkeypatch):
    """Chunks of gram of one network, as of networks much larger than a test's."""
    monkeypatch.setattr(gram, "_NUMBERS_IN_CACHE", 10)
    if request.param == "computed again":
        monkeypatch.setattr(noise, "NUMBERS_KEPT", 0)


@pytest.mark.parametrize("name", ["mlp", "mlp+bn", "elementwise first", "frozen parameters"])
def test_chunks_of_gram_are_the_same_on_any_number_of_threads(name, in_chunks):
    module, info, X = of_zoo(name, "gram", double=False)
    layers = gram_layers(module)
    first = draw(module, info, X, 7)
    # Each chunk is a network, and what its draws give alone.
    draws = StepRandom(0).split(7)
    alone = torch.cat([gram.gram_logits(layers, X, 1, SCALE, random) for random in draws])
    assert_close(first, alone, rtol=1e-5, atol=1e-6)
    expected = slopes_of(loss_of(alone), module)
    for n_threads in (1, 2, 3):
        with as_a_team_of(n_threads):
            logits = draw(module, info, X, 7)
            assert torch.equal(logits, first)
            for _ in range(2):  # of one graph
                slopes = slopes_of(loss_of(logits), module, retain_graph=True)
                assert_close(slopes, expected, rtol=1e-5, atol=1e-6)
            with pytest.raises(RuntimeError, match="differentiable once"):
                slopes_of(loss_of(logits), module, create_graph=True)
    with torch.no_grad():
        assert not draw(module, info, X, 7).requires_grad


# Numbers of an example's activations by which each of 4 networks is a chunk: kept, and not.
KEPT, COMPUTED_AGAIN = 1 << 21, 1 << 40


@pytest.mark.parametrize("name", ["convnet+bn", "words", "lstm", "transformer"])
def test_chunks_of_functional_are_networks_of_their_own(name):
    module, info, X = of_zoo(name, "functional")
    found = []
    for n_activations in (KEPT, COMPUTED_AGAIN):
        logits = draw(module, replace(info, n_activations=n_activations), X, 4)
        twice = [slopes_of(loss_of(logits), module, retain_graph=True) for _ in range(2)]
        assert_close(*twice, rtol=0, atol=0)
        found.append((logits, twice[0]))
    assert_close(*found, rtol=1e-12, atol=1e-12)
    for random, network in zip(StepRandom(0).split(4), found[0][0], strict=True):
        alone = functional_logits(module, X, 1, SCALE, random, by_vmap=info.by_vmap)
        assert_close(network, alone[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sampler", ["gram", "functional"])
def test_dropout_is_the_same_when_it_is_computed_again(sampler, monkeypatch):
    module = seeded(lambda: perceptron(nn.Dropout(), nn.Tanh()))
    X, found, calls, dropout = torch.from_numpy(rows()), [], [0], nn.functional.dropout
    info = inspect_module(module, X, sampler)

    def counted(*args):
        calls[-1] += 1
        return dropout(*args)

    monkeypatch.setattr(nn.functional, "dropout", counted)
    for n_kept, n_activations in ((1 << 28, KEPT), (0, COMPUTED_AGAIN)):
        monkeypatch.setattr(gram, "_NUMBERS_IN_CACHE", 60)
        monkeypatch.setattr(noise, "NUMBERS_KEPT", n_kept)
        torch.manual_seed(0)
        logits = draw(module, replace(info, n_activations=n_activations), X, 4)
        torch.rand(3)  # whatever draws in between
        before = torch.get_rng_state()
        found.append((logits, slopes_of(loss_of(logits), module)))
        assert torch.equal(torch.get_rng_state(), before)
        calls.append(0)
    assert_close(*found, rtol=1e-5, atol=1e-6)
    assert calls[1] == 2 * calls[0] > 0


@pytest.mark.parametrize("name", ["mlp+bn", "convnet+bn", "spectral norm"])
def test_networks_leave_no_trace_in_the_module_even_after_an_error(name):
    module, info, X = of_zoo(name, "functional")
    before = copy.deepcopy(module.state_dict())
    kept = {part: dict(vars(part)) for part in module.modules()}
    settings = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    draw(module, info, X, 2)
    with pytest.raises((RuntimeError, ValueError)):  # whatever a layer says of other sizes
        draw(module, info, X[..., :5], 2)
    assert_close(module.state_dict(), before, rtol=0, atol=0)
    for part, variables in kept.items():
        assert vars(part).keys() == variables.keys()
        assert not part._forward_hooks
        assert {k for k, value in vars(part).items() if value is not variables[k]} == set()
    own = torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()
    assert own == settings


def after(change):
    module = perceptron(nn.ReLU())
    change(module)
    return module


REFUSED = {
    **OTHERS,
    "another activation": (lambda: perceptron(nn.Softmax(dim=1)), rows()),
    "a layer of one's own": (lambda: perceptron(type("Own", (nn.Linear,), {})(5, 5)), rows()),
    "a sequence with a forward of its own": (
        lambda: type("Own", (nn.Sequential,), {"forward": lambda m, x: m[0](x)})(nn.Linear(6, 3)),
        rows(),
    ),
    "an activation at the end": (lambda: perceptron().append(nn.Tanh()), rows()),
    "a norm first": (lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)), rows()),
    "a forward of its own": (lambda: after(lambda m: setattr(m[1], "forward", torch.exp)), rows()),
    "hooks of gradients": (lambda: after(lambda m: m[0].weight.register_hook(abs)), rows()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_gram_refuses_what_it_does_not_serve(name):
    make, X = REFUSED[name]
    module = seeded(make)
    assert gram_layers(module) == []
    why = "it has hooks" if name in ("hooked", "hooks of gradients") else "gram needs an MLP"
    with pytest.raises(ValueError, match=rf"sampler='gram' cannot perturb .*{why}"):
        inspect_module(module, torch.from_numpy(X), "gram")


@pytest.mark.parametrize("name", BEYOND_VMAP)
def test_networks_beyond_vmap_pass_one_after_the_other_with_a_warning(name):
    make, X = BEYOND_VMAP[name]
    module, X = seeded(make), torch.from_numpy(X)
    with pytest.warns(UserWarning, match=r"are computed one after the other") as caught:
        info = inspect_module(module, X)
    assert [warning.filename for warning in caught] == [__file__]
    assert (info.sampler, info.by_vmap) == ("functional", False)
    init = MMDInitializer(module=module, n_perturbations=2, max_iter=1, random_state=0)
    with pytest.warns(UserWarning, match="one after the other"):
        init.fit(rows(40))
    assert np.isfinite(init.best_loss_)


def test_what_no_sampler_can_do_is_an_error_that_says_why():
    module = perceptron(nn.ReLU())
    whole = partial(nn.Sequential.forward, module)
    module.forward = lambda x: checkpoint(whole, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="switch off activation checkpointing") as caught:
        inspect_module(module, torch.from_numpy(rows()))
    assert "no sampler can perturb the module Sequential" in caught.value.__notes__[0]
