"""What hooks cannot see goes to the functional sampler, what that cannot do is said by name."""

import math
import pickle
import re

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn
from torch.utils.checkpoint import checkpoint

from module_zoo import (
    Bare,
    Centred,
    Routed,
    SequenceFirst,
    blueprint,
    double_network,
    draw,
    images,
    rows,
    seeded,
)
from protocol.networks import MODULES
from sklearn_mmdinit import MMDInitializer, register_layer
from sklearn_mmdinit._compute import StepRandom
from sklearn_mmdinit._modules import samplers_of
from sklearn_mmdinit._modules.registry import LAYER_TYPES, layer_type_of, parameter_stds


class Tail(nn.Module):
    """The table of an embedding, used a second time past its layer."""

    def __init__(self):
        super().__init__()
        self.table, self.mix = nn.Embedding(6, 5), nn.Linear(5, 5)

    def forward(self, x):
        hidden = self.mix(self.table((x > 0).long()).mean(1))
        return nn.functional.linear(hidden, self.table.weight)


REASONS = {
    "transformer+multihead": (lambda: MODULES["transformer+multihead"](3), images(), "in_proj"),
    "bare": (Bare, rows(), "'weight', 'shift', 'factor'"),
    "weights used past their layer": (Tail, rows(), r"\['table.weight'\]"),
    "rows that depend on each other": (Centred, rows(), "rows depend"),
    "examples on another axis": (SequenceFirst, rows(width=8), "than the first"),
    "layers that are changed": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)),
        rows(),
        "parametrizations.weight.original",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_hooks_cannot_see_is_functional(name):
    make, X, words = REASONS[name]
    module = seeded(make)
    made = blueprint(module, X)
    assert re.search(words, made.why_functional)
    network = made.network(made.fresh(), "cpu")
    assert set(samplers_of(network, "auto", 4).values()) == {"functional"}
    with pytest.raises(ValueError, match=rf"sampler='gram' cannot perturb .*{words}"):
        blueprint(module, X, "gram")


def test_hooks_serve_the_others():
    for make in (MODULES["transformer"], MODULES["residual"]):
        assert blueprint(seeded(lambda make=make: make(3)), images()).why_functional == ""
    assert blueprint(seeded(lambda: MODULES["convnet"](2)), images(), "functional").why_functional


@pytest.mark.parametrize("sampler", ["auto", "functional"])
def test_what_no_sampler_can_do_is_said_with_the_layer(sampler):
    with pytest.raises(ValueError, match=r"the layer 'body.router' \(Router\) fails under .*vmap"):
        blueprint(Routed(), rows(), sampler)


def test_functional_copies_are_those_of_a_loop():
    for make, X in ((Bare, rows()), (Centred, rows()), (SequenceFirst, rows(width=8))):
        network, batch = double_network(seeded(make), X)
        logits = draw(network, batch, 3, "auto", seed=4)
        parameters = dict(network.named_parameters())
        assert logits.shape == (3, 4, 3)
        random = StepRandom(4, dtype=torch.float64)
        stds = parameter_stds(network.module, math.sqrt(0.5))
        assert list(stds) == list(parameters)
        eps = {n: random.normal(3, *parameters[n].shape) * std for n, std in stds.items()}
        for k in range(3):
            own = {name: value + eps[name][k] for name, value in parameters.items()}
            alone = torch.func.functional_call(network.module, own, (batch,))
            torch.testing.assert_close(logits[k], alone, rtol=1e-9, atol=1e-10)


def test_the_law_of_parameters_of_no_layer():
    stds = parameter_stds(Bare(), 2.0)
    assert stds["weight"] == 2.0 / math.sqrt(6)
    assert stds["shift"] == 2.0 / math.sqrt(4)
    assert stds["factor"] == 2.0
    attention = parameter_stds(nn.MultiheadAttention(8, 2), 1.0)
    assert attention["in_proj_weight"] == attention["out_proj.weight"] == 1 / math.sqrt(8)
    assert attention["in_proj_bias"] == 1 / math.sqrt(24)


# The registry


class Diagonal(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.shift = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x * self.weight + self.shift


class Loud(Diagonal):
    def forward(self, x):
        return super().forward(x).exp()


@pytest.fixture
def registry(monkeypatch):
    """The registry, as it was afterwards."""
    for kind in (*LAYER_TYPES, Diagonal):
        monkeypatch.setitem(LAYER_TYPES, kind, LAYER_TYPES.get(kind))
    del LAYER_TYPES[Diagonal]
    yield LAYER_TYPES
    LAYER_TYPES.pop(Diagonal, None)


def diagonal_network():
    return nn.Sequential(nn.Linear(6, 5), Diagonal(5), nn.Tanh(), nn.Linear(5, 3))


def stds_of(layer, scale):
    return {"weight": scale, "shift": scale / math.sqrt(len(layer.shift))}


def test_a_layer_of_a_user_is_one_pass_once_it_is_known(registry):
    module = seeded(diagonal_network)
    assert "'1.weight'" in blueprint(module, rows()).why_functional
    register_layer(Diagonal, stds_of)
    network, batch = double_network(module, rows())
    assert network.why_functional == ""
    assert samplers_of(network, "gram", 4) == {"0": "gram", "1": "direct", "3": "gram"}
    hooks, functional = (draw(network, batch, 3, s) for s in ("direct", "functional"))
    torch.testing.assert_close(hooks, functional)
    assert layer_type_of(Loud(3)) is None, "it does something else"

    def noise(layer, H, eps):
        calls.append(H.shape)
        return H * eps["weight"].unsqueeze(1) + eps["shift"].unsqueeze(1)

    calls = []
    register_layer(Diagonal, stds_of, noise)
    torch.testing.assert_close(draw(network, batch, 3, "direct"), hooks)
    assert calls == [(3, 4, 5)]


def test_hooks_of_a_layer_that_a_user_makes_known_see_its_noise(registry):
    register_layer(Diagonal, stds_of)
    module = seeded(diagonal_network)
    module[1].register_forward_pre_hook(lambda layer, args: (0.5 * args[0],))
    module[1].register_forward_hook(lambda layer, args, output: 0.2 * output + 0.1)
    network, batch = double_network(module, rows())
    hooks, functional = (draw(network, batch, 3, s) for s in ("direct", "functional"))
    torch.testing.assert_close(hooks, functional)


@pytest.mark.parametrize("sampler", ["auto", "functional"])
def test_a_process_that_does_not_know_the_layer_says_so(registry, sampler):
    register_layer(Diagonal, stds_of)
    params = {"n_perturbations": 4, "max_iter": 1, "window": 2, "batch_size": 8}
    X = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    init = MMDInitializer(
        module=seeded(diagonal_network), sampler=sampler, random_state=0, **params
    ).fit(X)
    kept, score = pickle.dumps(init), init.score(X)
    del registry[Diagonal]  # as in a process of its own
    there = pickle.loads(kept)
    for call in (there.score, there.partial_fit):
        with pytest.raises(RuntimeError, match=r"the layer '1' .* call register_layer\(Diagonal,"):
            call(X)
    assert there.to_module()(torch.from_numpy(X)).shape == (16, 3), "theta0 itself is of use"
    register_layer(Diagonal, stds_of)
    assert pickle.loads(kept).score(X) == score


def test_a_type_without_a_law_is_a_normalisation(registry):
    register_layer(Diagonal, lambda layer, scale: {})
    network, batch = double_network(seeded(diagonal_network), rows())
    assert set(parameter_stds(network.module, 1.0)) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    hooks, functional = (draw(network, batch, 3, s) for s in ("direct", "functional"))
    torch.testing.assert_close(hooks, functional)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((Diagonal(2), stds_of), "layer_class must be a subclass of nn.Module, got Diagonal"),
        ((int, stds_of), "layer_class must be a subclass of nn.Module, got <class 'int'>"),
        ((Diagonal, {"weight": 1.0}), r"stds must be callable, got \{'weight'"),
        ((Diagonal, stds_of, 3), "noise must be callable, got 3"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(registry, arguments, words):
    with pytest.raises(TypeError, match=words):
        register_layer(*arguments)
    assert Diagonal not in LAYER_TYPES


@pytest.mark.parametrize(
    ("stds", "kind", "words"),
    [
        ({"weight"}, TypeError, r"the layer '1', must return a dict, got \{'weight'\}"),
        ({"wieght": 1.0}, ValueError, r"some of \['shift', 'weight'\], got 'wieght'"),
        ({1: 1.0}, ValueError, r"some of \['shift', 'weight'\], got 1"),
        ({"weight": "1"}, TypeError, "must return numbers or tensors, got 'weight': '1'"),
        ({"weight": -1.0}, ValueError, "must return finite numbers >= 0, got 'weight': -1.0"),
        ({"weight": torch.tensor([1.0, np.nan])}, ValueError, "must return finite numbers >= 0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_where_its_layer_is_met(registry, stds, kind, words):
    register_layer(Diagonal, lambda layer, scale: stds)
    with pytest.raises(kind, match=words):
        blueprint(seeded(diagonal_network), rows())


def test_a_rule_may_name_what_a_layer_has_in_another_form(registry):
    register_layer(Diagonal, stds_of)
    module = seeded(diagonal_network)
    nn.utils.parametrize.register_parametrization(module[1], "weight", nn.Softplus())
    assert "1.parametrizations.weight.original" in blueprint(module, rows()).why_functional


@pytest.mark.parametrize(
    "layer", [nn.Embedding(4, 3, max_norm=1.0), nn.Bilinear(2, 2, 2), nn.LSTM(2, 2), nn.ReLU()]
)
def test_layers_that_are_not_known(layer):
    assert layer_type_of(layer) is None


def test_a_layer_with_a_forward_of_its_own_is_not_known():
    layer = nn.Linear(2, 2)
    assert layer_type_of(layer) is not None
    layer.forward = lambda x: x
    assert layer_type_of(layer) is None


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(6, 1)), r"returned float32 of shape \(4, 1\)"),
        (nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 3)), r"of shape \(4, 2, 3\)"),
        (nn.Sequential(nn.Unflatten(1, (2, 3)), nn.LSTM(3, 3, batch_first=True)), "returned tuple"),
    ],
)
def test_what_is_no_logits_is_refused(module, words):
    with pytest.raises(ValueError, match=words):
        blueprint(module, rows())


def test_a_module_with_nothing_to_perturb_is_refused():
    frozen = nn.Linear(6, 3).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameters to perturb"):
        blueprint(frozen, rows())


class Narrow(nn.Module):
    """Computes its layers in half precision."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 16), nn.Linear(16, 2)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.first(x.flatten(1)).relu()).float()


@pytest.mark.parametrize("sampler", ["gram", "direct"])
def test_a_module_may_compute_in_half_precision(sampler):
    X = images(n=64)
    init = MMDInitializer(
        module=seeded(Narrow), n_perturbations=64, max_iter=2, random_state=0, sampler=sampler
    )
    assert init.fit(X).why_functional_ == ""
    assert np.isfinite(init.loss_curve_).all()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
    plain[1], plain[3] = (getattr(seeded(Narrow), name) for name in ("first", "last"))
    wide = clone(init).set_params(module=plain).fit(X)
    np.testing.assert_allclose(init.loss_curve_, wide.loss_curve_, rtol=0.05)


class Checkpointed(nn.Module):
    """Computes a layer again for its gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(checkpoint(self.first, x, use_reentrant=False).relu())


@pytest.mark.parametrize("sampler", ["auto", "direct", "functional"])
def test_layers_that_are_computed_again_are_refused(sampler):
    with pytest.raises(ValueError, match=r"its gradient fails with .*as torch.utils.checkpoint"):
        blueprint(Checkpointed(), rows(), sampler)
