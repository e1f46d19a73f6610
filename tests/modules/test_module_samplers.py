"""Perturbed copies of any module: all samplers have the functional one's law."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from module_zoo import (
    SCALE,
    Convs,
    Halved,
    Tied,
    Twice,
    Volumes,
    Words,
    blueprint,
    double_network,
    draw,
    images,
    rows,
    seeded,
    tokens,
)
from protocol.networks import MODULES, PatchTransformer, ResidualNet, flat_perceptron
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._modules import perturbed, samplers_of
from sklearn_mmdinit._modules.copies import copied_logits
from sklearn_mmdinit._modules.gram import gram_noise
from sklearn_mmdinit._modules.layer_type import noise_by_vmap
from sklearn_mmdinit._modules.registry import layer_type_of
from sklearn_mmdinit._sampling.law import bias_std, weight_std


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


ZOO = {
    **{name: (lambda make=make: make(3), images()) for name, make in MODULES.items()},
    "twice": (Twice, rows()),
    "tied": (Tied, rows()),
    "words": (Words, tokens()),
    "convolutions": (Convs, rows(width=12)),
    "volumes": (Volumes, rows(width=12)),
    "frozen": (frozen, images()),
    "hooked": (hooked, rows()),
    "in place": (lambda: Halved(in_place=True), rows()),
    "first ReLU in place": (
        lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)),
        rows(),
    ),
}
del ZOO["transformer+multihead"]  # hooks cannot serve it: see test_served.py
zoo = pytest.mark.parametrize("name", ZOO)


def network_of(name):
    make, X = ZOO[name]
    return double_network(seeded(make), X)


def slopes(network, logits):
    weights = torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view(logits.shape)
    loss = (logits.softmax(-1) * weights).sum()
    return torch.autograd.grad(
        loss, list(network.parameters()), allow_unused=True, materialize_grads=True
    )


@zoo
def test_direct_is_the_functional_form_on_the_same_draws(name):
    # Layers are called in the order of their names: both ask for the same normals.
    network, batch = network_of(name)
    hooks, functional = (draw(network, batch, 3, sampler) for sampler in ("direct", "functional"))
    torch.testing.assert_close(hooks, functional, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(hooks[0], hooks[1], atol=1e-3)
    for own, theirs in zip(slopes(network, hooks), slopes(network, functional), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-8, atol=1e-9)


def assert_same_law(a, b):
    n = len(a)
    a, b = (x.detach().reshape(n, -1).numpy() for x in (a, b))
    spread = np.sqrt((a.var(0) + b.var(0)) / n)
    assert np.all(np.abs(a.mean(0) - b.mean(0)) < 5 * spread)
    covariance = np.cov(a.T), np.cov(b.T)
    scale = np.sqrt(np.outer(np.diag(covariance[0]), np.diag(covariance[0])))
    assert np.abs(covariance[0] - covariance[1]).max() < (0.25 * scale).max()
    for column in range(a.shape[1]):
        assert stats.ks_2samp(a[:, column], b[:, column]).pvalue > 1e-4


# Small: by gram a convolution takes a matrix of its pixels by its pixels.
TINY = {
    "perceptron+bn": (lambda: flat_perceptron(3, 6, True, side=2), images(side=2)),
    "residual": (lambda: ResidualNet(3, 2, 1), images(side=4)),
    "transformer": (lambda: PatchTransformer(3, 4, 1, patch=2, side=4), images(side=4)),
    **{name: ZOO[name] for name in ("twice", "tied", "words", "convolutions")},
}


@pytest.mark.parametrize("name", TINY)
def test_gram_has_the_law_of_the_functional_form(name):
    make, X = TINY[name]
    network, batch = double_network(seeded(make), X[:3])
    assert "gram" in samplers_of(network, "gram", 3).values()
    with torch.no_grad():
        gram = draw(network, batch, 1200, "gram", seed=1)
        functional = draw(network, batch, 1200, "functional", seed=2)
    assert_same_law(gram, functional)


@pytest.mark.parametrize("name", ["convolutions", "words"])
def test_gradients_by_gram_are_right_on_average(name):
    make, X = TINY[name]
    network, batch = double_network(seeded(make), X[:3])

    def mean_slopes(sampler, seed):
        logits = draw(network, batch, 60, sampler, seed)
        loss = logits.softmax(-1)[..., 0].square().mean()
        own = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        return torch.cat([g.flatten() for g in own if g is not None])

    direct = torch.stack([mean_slopes("direct", seed) for seed in range(12)])
    gram = torch.stack([mean_slopes("gram", seed) for seed in range(12, 24)])
    spread = ((direct.var(0) + gram.var(0)) / 12).sqrt()
    assert float(((direct.mean(0) - gram.mean(0)).abs() / (spread + 1e-7)).max()) < 5.5
    assert float(gram.var(0).sum()) < 2 * float(direct.var(0).sum())


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
uneven = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")


@uneven
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [1, 3])
def test_noise_of_a_layer_is_the_layer_with_other_parameters(name, n):
    layer, shape = LAYERS[name]
    kind, H = layer_type_of(layer), torch.randn(n, 2, *shape)
    eps = {own: torch.randn(3, *parameter.shape) for own, parameter in layer.named_parameters()}
    noise = kind.noise(layer, H, eps)
    torch.testing.assert_close(noise, noise_by_vmap(layer, H, eps), rtol=1e-4, atol=1e-5)
    for own in eps:
        alone = kind.noise(layer, H, {own: eps[own]})
        torch.testing.assert_close(
            alone, noise_by_vmap(layer, H, {own: eps[own]}), rtol=1e-4, atol=1e-5
        )


@uneven
@pytest.mark.parametrize("name", LAYERS)
def test_patches_times_weights_are_the_outputs(name):
    layer, shape = LAYERS[name]
    kind, H = layer_type_of(layer), torch.randn(2, *shape)
    patches = kind.patches(layer, H)
    groups = patches.shape[2]
    weight = layer.weight.flatten(1).unflatten(0, (groups, -1))
    out = torch.einsum("npgi,goi->npgo", patches, weight).flatten(2)
    expected = layer(H)
    if layer.bias is not None:
        out = out + layer.bias
    positions = expected.movedim(kind.channels, -1).shape
    torch.testing.assert_close(
        out.view(positions).movedim(-1, kind.channels), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("n", [1, 20_000])
def test_the_covariance_of_noise_by_gram_is_known(n):
    rows = torch.randn(1, 2, 3, 2, 4, dtype=torch.float64)  # 2 examples, 3 positions, 2 groups
    copies = rows.expand(n, -1, -1, -1, -1)
    if n > 1:
        copies = copies.clone().requires_grad_()
    noise = gram_noise(copies, 20_000, 6, 0.5, 0.3, StepRandom(0, dtype=torch.float64))
    noise = noise.detach().view(20_000, 6, 6)  # copies, examples and positions, units
    for unit, group in ((0, 0), (5, 1)):
        own = rows[0, :, :, group].flatten(0, 1)
        expected = 0.25 * own @ own.mT + 0.09
        found = torch.from_numpy(np.cov(noise[:, :, unit].T.numpy()))
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.03)
    between = (noise[:, :, 0] * noise[:, :, 1]).mean(0)
    assert float(between.abs().max()) < 0.05 * float(noise.var())


def test_the_law_of_each_parameter_is_the_documented_one():
    network, _ = network_of("words")
    stds = {name: p.std() for name, p in _perturbations(network, "functional").items()}
    assert float(stds["table.weight"]) == pytest.approx(SCALE * np.sqrt(6 / 7), rel=0.02)
    assert float(stds["mix.weight"]) == pytest.approx(weight_std(5, SCALE), rel=0.02)
    assert float(stds["head.bias"]) == pytest.approx(bias_std(3, SCALE), rel=0.02)
    network, _ = network_of("convolutions")
    stds = {name: p.std() for name, p in _perturbations(network, "functional").items()}
    assert float(stds["b.weight"]) == pytest.approx(weight_std(2 * 3, SCALE), rel=0.02)
    assert float(stds["c.bias"]) == pytest.approx(bias_std(4, SCALE), rel=0.02)


def _perturbations(network, sampler):
    """The perturbations of 5,000 copies, by name."""
    from sklearn_mmdinit._modules.registry import parameter_stds

    random = StepRandom(0, dtype=torch.float64)
    parameters = dict(network.named_parameters())
    return {
        name: random.normal(5000, *parameters[name].shape).mul_(std)
        for name, std in parameter_stds(network.module, SCALE).items()
    }


def test_a_row_for_padding_stays():
    network, _ = network_of("words")
    eps = _perturbations(network, "functional")["table.weight"]
    assert not eps[:, 0].any()
    assert eps[:, 1:].all()


def test_frozen_parameters_are_not_perturbed():
    module = seeded(lambda: MODULES["perceptron"](3))
    module[1].requires_grad_(False)
    module[3].bias.requires_grad_(False)
    network, batch = double_network(module, images())
    for sampler in ("direct", "gram"):
        assert set(samplers_of(network, sampler, 4)) == {"3", "5"}
        with torch.no_grad():
            own = draw(network, batch[:2], 2000, sampler, seed=1)
            assert_same_law(own, draw(network, batch[:2], 2000, "functional", seed=2))


def test_auto_takes_the_cheaper_sampler_of_each_layer():
    network, _ = network_of("convnet")
    assert samplers_of(network, "auto", 4) == {
        "conv1": "direct",
        "conv2": "direct",
        "fc1": "gram",
        "fc2": "direct",
    }
    # Few tokens, and a wide layer.
    wide = nn.Sequential(nn.Unflatten(1, (2, 6)), nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 300))
    wide.append(nn.Flatten()).append(nn.Linear(600, 2))
    network, _ = double_network(wide, rows(width=12))
    assert samplers_of(network, "auto", 4) == {"1": "direct", "3": "gram", "5": "gram"}
    assert samplers_of(network, "auto", 2)["1"] == "gram"
    assert set(samplers_of(network, "auto", 64).values()) == {"direct"}


@pytest.mark.parametrize("name", ["twice", "tied"])
def test_layers_whose_perturbation_acts_in_several_places_are_direct(name):
    network, _ = network_of(name)
    chosen = samplers_of(network, "gram", 4)
    assert chosen.pop("head") == "gram"
    assert set(chosen.values()) == {"direct"}


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(perturbed, "_NUMBERS_KEPT", 0)
    monkeypatch.setattr(perturbed, "_NUMBERS_A_PART", 30_000)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("sampler", ["auto", "direct", "functional"])
@pytest.mark.parametrize("name", ["convnet+bn", "words"])
def test_parts_are_computed_again_for_their_gradient(name, sampler, monkeypatch):
    if name == "words":
        monkeypatch.setattr(perturbed, "_NUMBERS_A_PART", 600)
    network, batch = network_of(name)
    calls = []
    network.module.register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    logits = draw(network, batch, 7, sampler)
    forward = len(calls)
    assert 1 < forward <= 7
    own = slopes(network, logits)
    assert len(calls) == 2 * forward
    # The same with all graphs kept.
    random = StepRandom(0, dtype=torch.float64)
    sizes = [n // len(batch) for n in calls[:forward]]
    if sampler == "functional":
        sizes = [7 * (i + 1) // forward - 7 * i // forward for i in range(forward)]
        pieces = [
            perturbed.functional_logits(network, batch, size, SCALE, part)
            for size, part in zip(sizes, random.split(forward), strict=True)
        ]
    else:
        pieces = [
            copied_logits(network, batch, size, SCALE, sampler, part)
            for size, part in zip(sizes, random.split(forward), strict=True)
        ]
    whole = torch.cat(pieces)
    assert torch.equal(logits, whole)
    for a, b in zip(own, slopes(network, whole), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
    with torch.no_grad():
        assert torch.equal(draw(network, batch, 7, sampler), logits)


def test_what_fits_is_computed_once(monkeypatch):
    monkeypatch.setattr(perturbed, "_NUMBERS_A_PART", 1)  # a copy
    network, batch = network_of("convnet")
    numbers = perturbed._numbers_a_copy(network, len(batch), "auto")
    calls, found = [], []
    network.module.register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    for n_kept in (9, 7, 4, 1, 0):
        monkeypatch.setattr(perturbed, "_NUMBERS_KEPT", n_kept * numbers)
        calls.clear()
        found.append(slopes(network, draw(network, batch, 7, "auto")))
        assert calls == [len(batch)] * (7 + max(7 - n_kept, 0))
    for own in found[1:]:
        for a, b in zip(own, found[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ["convnet", "words", "residual"])
def test_a_first_layer_computes_once_what_all_copies_have_in_common(name):
    network, batch = network_of(name)
    first, *_, last = network.trace.calls
    assert first.first
    seen = {}
    for call in (first, last):
        network.module.get_submodule(call.layer).register_forward_hook(
            lambda layer, args, output, name=call.layer: seen.update({name: len(args[0])})
        )
    draw(network, batch, 7, "direct")
    # What comes next sees the rows of all copies, with their noise in them.
    assert seen == {first.layer: len(batch), last.layer: 7 * len(batch)}


def test_rows_at_a_time_do_not_grow_with_the_number_of_networks(monkeypatch):
    monkeypatch.setattr(perturbed, "_NUMBERS_KEPT", 0)
    monkeypatch.setattr(perturbed, "_NUMBERS_A_PART", 60_000)
    network, batch = network_of("convnet")
    most = {}
    for K in (8, 64):
        seen = []
        handle = network.module.register_forward_hook(
            lambda module, args, output, seen=seen: seen.append(len(args[0]))
        )
        draw(network, batch, K, "auto")
        handle.remove()
        assert sum(seen) == K * len(batch)
        most[K] = max(seen)
    assert most[64] <= most[8] + len(batch)


@pytest.mark.parametrize("sampler", ["direct", "functional"])
def test_each_copy_normalises_by_its_own_rows_and_leaves_no_trace(sampler):
    for name in ("convnet+bn", "volumes"):
        network, batch = network_of(name)
        before = {key: value.clone() for key, value in network.module.state_dict().items()}
        many = draw(network, batch, 3, sampler)
        after = network.module.state_dict()
        assert all(torch.equal(after[key], value) for key, value in before.items())
        # Without noise each copy is the module itself, in training on the same rows.
        none = draw(network, batch, 3, sampler, scale=1e-300)
        alone = network.module(batch)
        torch.testing.assert_close(none, alone.expand(3, -1, -1), rtol=1e-9, atol=1e-9)
        assert not torch.allclose(many[0], many[1])


@pytest.mark.parametrize("sampler", ["direct", "functional"])
def test_a_frozen_normalisation_is_the_same_for_all_copies_and_rows(sampler):
    network, batch = network_of("frozen")
    before = network.module.norm1.running_mean.clone()
    assert network.module.norm2.training
    network.module.norm2.eval()  # so that no row has to do with another
    whole, part = (draw(network, X, 3, sampler) for X in (batch, batch[:2]))
    torch.testing.assert_close(whole[:, :2], part)
    network.module.norm2.train()
    network.pre_activations(batch)
    assert torch.equal(network.module.norm1.running_mean, before)
    assert not torch.equal(network.module.norm2.running_mean, torch.zeros(16).double())


def hooks_of(module):
    return [h for m in module.modules() for h in (*m._forward_hooks, *m._forward_pre_hooks)]


@pytest.mark.parametrize("sampler", ["auto", "direct", "functional"])
def test_nothing_stays_hooked_even_after_an_error(sampler):
    network, batch = network_of("convnet+bn")
    draw(network, batch, 2, sampler)
    assert not hooks_of(network.module)
    fused = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError):  # whatever the layer says of images of another size
        draw(network, batch[:, :, :5, :5], 2, sampler)
    assert not hooks_of(network.module)
    assert torch.backends.mha.get_fastpath_enabled() == fused
    assert all(n.track_running_stats for n in network.module.modules() if hasattr(n, "momentum"))
    assert network.module.norm1.running_mean is not None


def test_draws_are_a_function_of_seed_and_step():
    network, batch = network_of("convnet")
    first, again, other = (draw(network, batch, 3, "auto", seed) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_dropout_is_off():
    made = blueprint(seeded(lambda: MODULES["convnet"](3)), images())
    network = made.network(made.fresh(), "cpu")
    batch = made.examples(images())
    assert torch.equal(network.module(batch), network.module(batch))
    assert not network.module.drop.training


@pytest.mark.parametrize("n_copies", [1, 3])
def test_rows_that_were_changed_in_place_are_those_of_one_copy_each(n_copies):
    networks = [
        double_network(seeded(lambda own=in_place: Halved(own, residual=True)), rows())[0]
        for in_place in (False, True)
    ]
    batch = torch.from_numpy(rows()).double()
    with torch.no_grad():
        apart, in_place = (draw(network, batch, n_copies, "direct") for network in networks)
    torch.testing.assert_close(in_place, apart)
    assert torch.equal(batch, torch.from_numpy(rows()).double())


def test_what_a_layer_returns_is_looked_at_before_hooks_of_the_module_s_own():
    network, batch = network_of("hooked")
    logits, taps = network.pre_activations(batch)
    first, norm, last = network.module[0], network.module[1], network.module[3]
    own = nn.functional.linear(0.5 * batch, first.weight, first.bias)
    assert [axis for _, axis in taps] == [0, 0]
    torch.testing.assert_close(taps[1][0], own)
    own = 0.2 * own + 0.1
    own = (own - own.mean(0)) / (own.var(0, correction=0) + norm.eps).sqrt()
    torch.testing.assert_close(logits, last(own.square().tanh()))
