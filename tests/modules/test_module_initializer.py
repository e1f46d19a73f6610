"""MMDInitializer of any module: its life is that of the perceptron's."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from torch import nn

from module_zoo import Bare, Halved, Words, digit_images, rows, seeded, tokens
from protocol.networks import MODULES, ConvNet, flat_perceptron
from sklearn_mmdinit import Coherence, MLPClassifier, MMDInitializer, NetClassifier, _auto
from sklearn_mmdinit._network import MLP, theta0_of
from sklearn_mmdinit.diagnostics import (
    coherence_kernel,
    dead_neuron_ratio,
    degenerate_softmax_ratio,
    prediction_samples,
)


@pytest.fixture(scope="module")
def digits():
    return digit_images(160, dtype=np.float64)


@pytest.fixture(scope="module")
def X(digits):
    return digits[0][:64]


def small(module=ConvNet, **params):
    defaults = {"n_perturbations": 4, "batch_size": 16, "max_iter": 2, "window": 3}
    defaults |= {"learning_rate_init": 2e-3, "random_state": 0}
    return MMDInitializer(module=module, **{**defaults, **params})


def network(name, n_classes=2):
    return seeded(lambda: MODULES[name](n_classes))


def assert_same(first, second):
    assert first.theta0_.arrays.keys() == second.theta0_.arrays.keys()
    for name, array in first.theta0_.arrays.items():
        np.testing.assert_array_equal(array, second.theta0_.arrays[name], err_msg=name)
    assert first.theta0_.architecture == second.theta0_.architecture
    assert first.history_ == second.history_


# What is learned


CASES = {
    "perceptron+bn": 2,
    "convnet": 3,
    "convnet+bn": 10,
    "residual": 2,
    "transformer": 5,
    "transformer+multihead": 2,
}


@pytest.mark.parametrize(("name", "n_classes"), CASES.items())
def test_every_network_learns_on_digits(name, n_classes, X):
    params = {"n_perturbations": 16, "batch_size": 32, "learning_rate_init": 4e-3, "keep": "last"}
    init = small(network(name, n_classes), max_iter=14, **params).fit(X)
    fresh = small(network(name, n_classes), max_iter=0, **params).fit(X)
    assert init.score(X) > fresh.score(X) + 0.05
    assert init.best_loss_ < init.loss_curve_[0]
    assert init.theta0_.architecture.n_classes == n_classes
    with torch.no_grad():
        logits = init.to_module().eval()(torch.from_numpy(X.astype(np.float32)))
    assert logits.shape == (len(X), n_classes)
    assert torch.isfinite(logits).all()
    functional = name == "transformer+multihead"
    assert (set(init.samplers_.values()) == {"functional"}) is functional
    assert ("in_proj_weight" in init.why_functional_) is functional


def test_a_sequence_has_the_loss_of_its_perceptron(X):
    """Same weights, the same law: the terms that are sampled agree within their noise."""
    perceptron = MMDInitializer((32, 32), max_iter=0, n_perturbations=200, random_state=0)
    perceptron.fit(X.reshape(len(X), -1))
    sequence = flat_perceptron(2, 32)
    with torch.no_grad():
        for own, theirs in zip(
            sequence.parameters(), perceptron.to_module().parameters(), strict=True
        ):
            own.copy_(theirs)
    init = small(sequence, max_iter=0, n_perturbations=200, batch_size=32).fit(X)
    assert init.score(X) == pytest.approx(perceptron.score(X.reshape(len(X), -1)), abs=0.03)
    assert init.samplers_ == {"1": "gram", "3": "direct", "5": "direct"}
    assert list(init.samplers_.values()) == list(perceptron.samplers_.values())


def test_a_sequence_learns_what_its_perceptron_learns(X):
    flat = X.reshape(len(X), -1)
    common = {"n_perturbations": 32, "max_iter": 8, "learning_rate_init": 2e-3, "keep": "last"}
    found = []
    for seed in range(2):
        own = {"random_state": seed, "batch_size": 16, "window": 16, **common}
        perceptron = MMDInitializer((32, 32), **own).fit(flat)
        start = MMDInitializer((32, 32), **{**own, "max_iter": 0}).fit(flat).to_module()
        sequence = flat_perceptron(2, 32)
        with torch.no_grad():
            for mine, theirs in zip(sequence.parameters(), start.parameters(), strict=True):
                mine.copy_(theirs)
        module = MMDInitializer(module=sequence, **own).fit(X)
        found.append([i.history_[-1][term] for i in (perceptron, module) for term in TERMS])
    perceptrons, modules = np.split(np.mean(found, axis=0), 2)
    np.testing.assert_allclose(modules, perceptrons, atol=0.06)


TERMS = ("loss", "uniformity", "degeneracy", "detachment")


# Means of the terms over the first eight steps.
FIGURES = {
    "perceptron": (1.51842, 0.53766, 0.39339, 0.82340),
    "convnet+bn": (1.28090, 0.48859, 0.43446, 0.61852),
    "transformer": (1.53577, 0.47212, 0.45499, 0.88166),
    "transformer+multihead": (1.38114, 0.36204, 0.44593, 0.84073),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_stay(name, X):
    record = small(network(name, 3), window=8).fit(X).history_[0]
    np.testing.assert_allclose([record[term] for term in TERMS], FIGURES[name], rtol=1e-3)


# Sources


def test_an_instance_is_the_start_and_is_never_changed(X):
    module = network("convnet+bn", 3).eval().requires_grad_(True)
    module.conv1.bias.requires_grad_(False)
    before = joblib.hash([p.detach().numpy() for p in module.state_dict().values()])
    init = small(module).fit(X)
    assert joblib.hash([p.detach().numpy() for p in module.state_dict().values()]) == before
    assert not any(part.training for part in module.modules())
    fresh = small(module, max_iter=0).fit(X).theta0_.arrays
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(fresh[name], value.numpy())
    np.testing.assert_array_equal(
        init.theta0_.arrays["conv1.bias"], module.conv1.bias.detach().numpy()
    )
    started = init.to_module()
    assert not started.training
    assert not started.conv1.bias.requires_grad
    assert not any(len(part._forward_hooks) for part in started.modules())


def test_a_class_is_called_with_the_random_state(X):
    state = torch.random.get_rng_state()
    first, again, other = (
        small(module__width=4, module__n_classes=3, random_state=seed, max_iter=0).fit(X)
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_same(first, again)
    weights = [init.theta0_.arrays["conv1.weight"] for init in (first, other)]
    assert weights[0].shape == (4, 1, 3, 3)
    assert not np.array_equal(*weights)
    description = first.theta0_.architecture
    assert description.module == "protocol.networks.ConvNet"
    assert dict(description.parameters) == {"width": "4", "n_classes": "3"}
    assert description.input_shape == (1, 8, 8)


def test_parameters_of_the_class_are_the_estimators(X):
    init = small(module__width=4)
    assert init.get_params()["module__width"] == 4
    copied = clone(init).set_params(module__width=6, module__n_classes=3, window=2)
    assert (copied.module__width, copied.module__n_classes, copied.window) == (6, 3, 2)
    assert init.get_params()["module__width"] == 4
    assert "module__width=4" in repr(init)
    assert copied.fit(X).theta0_.arrays["fc2.weight"].shape == (3, 24)
    copied.set_params(coherence="auto").set_params(coherence__separation=3.0)
    assert copied.coherence.separation == 3.0
    with pytest.raises(TypeError, match="unexpected parameter 'widht'"):
        MMDInitializer(module=ConvNet, widht=3)
    with pytest.raises(ValueError, match="widht"):
        init.set_params(widht=3)


def test_they_can_be_searched(X):
    search = GridSearchCV(small(max_iter=1), {"module__width": [2, 3]}, cv=2, error_score="raise")
    assert search.fit(X).best_params_["module__width"] in (2, 3)


def test_a_clone_of_an_instance_is_another_one(X):
    module = network("convnet")
    init = small(module)
    copied = clone(init)
    assert copied.module is not module
    assert_same(copied.fit(X), init.fit(X))


# Passes


@pytest.mark.parametrize("name", ["convnet+bn", "transformer+multihead"])
@pytest.mark.parametrize("params", [{}, {"coherence": Coherence(batch_size=20, n_neighbors=5)}])
def test_fit_is_max_iter_times_partial_fit_in_other_processes(name, params, X):
    whole = small(network(name), window=4, **params).fit(X)
    passes = small(network(name), window=4, **params)
    for _ in range(whole.max_iter):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(X)))
    assert_same(passes, whole)
    assert_same(passes.partial_fit(X), whole.partial_fit(X))
    assert passes.score(X) == whole.score(X) == whole.score(X)


def test_fit_starts_anew_and_draws_nothing_from_global_generators(X):
    before = torch.random.get_rng_state().clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    init = small().fit(X)
    assert_same(clone(init).fit(X), init)
    assert_same(init.fit(X), clone(init).fit(X))
    assert torch.equal(torch.random.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_a_pass_that_fails_leaves_no_trace(X):
    init = small().fit(X)
    arrays, history = init.theta0_.arrays, init.history_
    init.set_params(learning_rate_init=1e30)
    with pytest.raises(ValueError, match="not finite"):
        clone(init).fit(X)
    assert init.theta0_.arrays is arrays
    assert init.history_ is history


# Inputs and outputs


def test_examples_of_any_shape(X):
    init = small().fit(X)
    assert init.n_features_in_ == 64
    with pytest.raises(ValueError, match=r"examples of shape \(64,\).*shape \(1, 8, 8\)"):
        init.transform(X.reshape(len(X), -1))
    with pytest.raises(ValueError, match="NaN"):
        small().fit(np.where(X > 0.6, np.nan, X))
    out = init.transform(X)
    assert theta0_of(out) is init.theta0_
    np.testing.assert_array_equal(out, X)
    whole = (X * 16).round().astype(np.uint8)
    assert_same(small().fit(whole), small().fit(whole.astype(np.float32)))


def test_embeddings_get_whole_numbers():
    ids = tokens(60, words=7)
    init = small(Words, n_classes=3, batch_size=20).fit(ids)
    assert len(init.history_) == 2
    assert init.n_features_in_ == 5
    assert init.theta0_.architecture.last_layer == "head"
    assert init.samplers_["table"] == "direct"
    assert not init.theta0_.arrays["table.weight"][0].any(), "the row for padding"


def test_hidden_activations_are_the_inputs_of_the_last_linear_layer(X):
    init = small(network("convnet+bn", 3), output="hidden").fit(X)
    module, seen = init.to_module().eval(), []
    module.fc2.register_forward_pre_hook(lambda layer, args: seen.append(args[0]))
    with torch.no_grad():
        module(torch.from_numpy(X.astype(np.float32)))
    np.testing.assert_allclose(init.transform(X), seen[0].numpy(), rtol=1e-5, atol=1e-6)
    assert init.get_feature_names_out().tolist() == [f"mmdinitializer{i}" for i in range(32)]


class Scaled(nn.Module):
    """Logits that are no layer's output."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        return 2.0 * self.head(self.body(x).relu())


@pytest.mark.parametrize("params", [{"output": "hidden"}, {"coherence": "auto"}])
def test_the_last_layer_is_told_by_name_where_it_cannot_be_found(params):
    X = rows(40)
    with pytest.raises(ValueError, match=r"last linear layer of .*Scaled is not known.*'body'"):
        small(Scaled, **params).fit(X)
    with pytest.raises(ValueError, match=r"one of \['body', 'head'\], got 'heat'"):
        small(Scaled, hidden_layer="heat", **params).fit(X)
    init = small(Scaled, hidden_layer="head", **params).fit(X)
    assert init.set_params(output="hidden").transform(X).shape == (40, 5)
    neither = {"coherence": None, "output": "passthrough"}
    assert small(Scaled, **neither).fit(X).gain_ == ()


def test_a_layer_of_tokens_is_no_hidden_layer(X):
    with pytest.raises(ValueError, match="must see one row for each of 2 examples"):
        small(network("transformer"), hidden_layer="blocks.0.up", output="hidden").fit(X)


# Coherence


def test_coherence_helps_tasks_with_few_labels(digits):
    X, y = digits
    coherence = Coherence(batch_size=64, n_neighbors=5)
    params = {"coherence": coherence, "module__n_classes": 10, "output": "hidden"}
    params |= {"uniformity_weight": 0.0, "degeneracy_weight": 0.0, "detachment_weight": 0.0}
    scores = {}
    for max_iter in (0, 40):
        init = small(max_iter=max_iter, learning_rate_init=4e-3, **params)
        few = [int(np.flatnonzero(y == label)[i]) for label in range(10) for i in range(2)]
        pipeline = make_pipeline(init.fit(X), Normalizer(), LogisticRegression(C=100.0))
        pipeline[-1].fit(pipeline[:-1].transform(X[few]), y[few])
        scores[max_iter] = pipeline[-1].score(pipeline[:-1].transform(X), y)
    assert scores[40] > scores[0] + 0.05
    C = coherence_kernel(init, X)
    same = y[:, None] == y
    assert C[same].mean() > C[~same].mean() + 0.2
    assert set(init.history_[0]) == {"step", "loss", "coherence"}


def test_auto_knows_the_number_of_classes_of_the_module(X):
    for n_classes, reference in ((2, "closed_form"), (3, "sampled")):
        init = small(coherence="auto", max_iter=1, module__n_classes=n_classes).fit(X)
        assert init.auto_params_["reference"] == reference


# Gain


def test_a_sequence_that_hands_on_a_scale_has_a_gain(X):
    module = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        nn.Linear(36, 8, bias=False),
        nn.LeakyReLU(),
        nn.Dropout(0.1),
        nn.Linear(8, 3),
    )
    plain = small(module, gain=1).fit(X)
    scaled = small(module, gain=(3.0, 5.0)).fit(X)
    assert plain.theta0_.architecture.chain == ("0.0", "2", "5")
    batch = torch.from_numpy(X.astype(np.float32))
    with torch.no_grad():
        logits = [init.to_module().eval()(batch) for init in (plain, scaled)]
    torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        scaled.theta0_.arrays["0.0.bias"], 3 * plain.theta0_.arrays["0.0.bias"], rtol=1e-6
    )
    np.testing.assert_allclose(
        scaled.theta0_.arrays["5.weight"], plain.theta0_.arrays["5.weight"] / 15, rtol=1e-6
    )
    assert scaled.score(X) == pytest.approx(plain.score(X), rel=1e-4), "of theta0 before its gain"
    coherent = small(module, coherence=Coherence(batch_size=20), max_iter=1).fit(X)
    assert coherent.gain_[0] == coherent.gain_[1] != 1
    with pytest.raises(ValueError, match="one for each of the 2 hidden"):
        small(module, gain=(1.0, 2.0, 3.0)).fit(X)


@pytest.mark.parametrize("name", ["convnet+bn", "perceptron+bn"])
def test_others_have_none(name, X):
    module = network(name)
    assert small(module, coherence=Coherence(batch_size=20), max_iter=1).fit(X).gain_ == ()
    assert small(module, gain=1.0, max_iter=1).fit(X).gain_ == ()
    with pytest.raises(ValueError, match=r"gain=2.0 would change the function of the module"):
        small(module, gain=2.0).fit(X)
    with pytest.raises(ValueError, match='gain must be "auto"'):
        small(module, gain=-1.0).fit(X)


# Diagnostics, and what is the perceptron's alone


def test_diagnostics_of_a_module(X):
    init = small(network("convnet+bn", 3)).fit(X)
    P = prediction_samples(init, X[:6], n_perturbations=20, random_state=0)
    assert P.shape == (20, 6, 3)
    np.testing.assert_allclose(P.sum(-1), 1, rtol=1e-5)
    ratios = degenerate_softmax_ratio(init, X, n_batches=3, n_perturbations=10, random_state=0)
    assert ratios.shape == (3,)
    assert coherence_kernel(init, X[:5]).shape == (5, 5)
    with pytest.raises(ValueError, match=r"dead neurons .*ConvNet"):
        dead_neuron_ratio(init, X)
    with pytest.raises(ValueError, match="pass the fitted initializer"):
        prediction_samples(init.theta0_, X)
    with pytest.raises(ValueError, match=r"shape \(64,\), theta0 expects \(1, 8, 8\)"):
        prediction_samples(init, X.reshape(len(X), -1))


def test_what_a_module_has_not_is_said(X):
    init = small().fit(X)
    for name in ("coefs_", "intercepts_"):
        with pytest.raises(AttributeError, match=r"only a multi-layer perceptron .*ConvNet"):
            getattr(init, name)
    with pytest.raises(AttributeError, match="to_module"):
        _ = init.theta0_.architecture.hidden_layer_sizes
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = init.theta0_.architecture.nonsense
    flat = X.reshape(len(X), -1)
    clf = MLPClassifier(warm_start_from=init.theta0_)
    with pytest.raises(ValueError, match=r"module protocol.networks.*use NetClassifier"):
        clf.fit(flat, np.arange(len(X)) % 2)


def test_a_perceptron_is_a_module_too(X):
    init = MMDInitializer((5,), max_iter=1, n_perturbations=4, random_state=0)
    flat = X.reshape(len(X), -1)
    module = init.fit(flat).to_module()
    assert isinstance(module, MLP)
    np.testing.assert_array_equal(module.linears[0].weight.detach().numpy(), init.coefs_[0].T)
    assert init.to_module() is not module
    assert (init.samplers_, init.why_functional_) == (
        {"linears.0": "gram", "linears.1": "direct"},
        "",
    )


REFUSED = {
    "no module": ({"module": 3}, TypeError, "an instance or a class, got 3"),
    "function": ({"module": flat_perceptron}, TypeError, "instance or a class, got <function"),
    "instance with parameters": (
        {"module": nn.Linear(64, 2), "module__width": 3},
        ValueError,
        "module__width is for a class in module, got an instance of Linear",
    ),
    "parameters alone": ({"module": None, "module__width": 3}, ValueError, "needs a class"),
    "layer alone": ({"module": None, "hidden_layer": "fc"}, ValueError, "names a layer"),
    "functional": ({"module": None, "sampler": "functional"}, ValueError, "sampler must be one of"),
    "widths": ({"hidden_layer_sizes": (64,)}, ValueError, r"hidden_layer_sizes=\(64,\) describes"),
    "activation": ({"activation": "tanh"}, ValueError, "activation='tanh' describes"),
    "classes": (
        {"module__n_classes": 3, "n_classes": 4},
        ValueError,
        r"n_classes=4, but the module .*ConvNet returns 3 logits",
    ),
    "closed form": (
        {"module__n_classes": 3, "reference": "closed_form"},
        ValueError,
        "known for two classes only.*returns 3 logits",
    ),
    "class": ({"module__no_such": 3}, TypeError, "no_such"),
    "lazy": ({"module": nn.LazyLinear(2)}, ValueError, "'weight' of the module LazyLinear has no"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name, X):
    params, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        MMDInitializer(**{"module": ConvNet, "max_iter": 1, **params}).fit(
            X if params.get("module", 1) is not None else X.reshape(len(X), -1)
        )


def test_a_sampler_is_what_was_asked_for(X):
    init = small(sampler="functional", max_iter=1).fit(X)
    assert set(init.samplers_.values()) == {"functional"}
    assert init.why_functional_ == "it was asked for"
    with pytest.raises(ValueError, match="sampler='direct' cannot perturb"):
        small(Bare, sampler="direct").fit(rows(40))


def test_examples_that_a_module_does_not_take_are_named():
    X = np.zeros((8, 3, 4))
    with pytest.raises(
        ValueError, match=r"Linear does not take examples of shape \(3, 4\) and type"
    ):
        MMDInitializer(module=nn.Linear(5, 2)).fit(X)


def test_a_class_is_told_the_number_of_classes_where_it_takes_it(X):
    init = small(ConvNet, n_classes=5, max_iter=1).fit(X)
    assert init.theta0_.architecture.n_classes == 5
    other = small(ConvNet, module__n_classes=3, max_iter=1).fit(X)
    assert other.theta0_.architecture.n_classes == 3
    y = np.arange(len(X)) % 5
    clf = NetClassifier(warm_start_from=init, max_iter=1).fit(X, y)
    assert clf.predict_proba(X).shape == (len(X), 5)
    unfitted = small(ConvNet, n_classes=5, max_iter=1)
    assert NetClassifier(ConvNet, warm_start_from=unfitted, max_iter=1).fit(X, y).score(X, y) >= 0
    with pytest.raises(ValueError, match=r"n_classes=4, but the module .* returns 3 logits"):
        small(ConvNet, n_classes=4, module__n_classes=3).fit(X)
    with pytest.raises(ValueError, match=r"n_classes=4, but the module .* returns 2 logits"):
        small(ConvNet(), n_classes=4).fit(X)


class NeedsClasses(nn.Module):
    """Cannot be made without the number of classes."""

    def __init__(self, n_classes):
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 5), nn.Linear(5, n_classes)

    def forward(self, x):
        return self.head(self.hidden(x).relu())


def test_a_class_that_needs_the_number_of_classes_is_told_the_default_too():
    X, y = rows(40), np.arange(40) % 2
    init = small(NeedsClasses).fit(X)
    assert init.theta0_.architecture.n_classes == 2
    clf = NetClassifier(NeedsClasses, warm_start_from=small(NeedsClasses), max_iter=1)
    assert clf.fit(X, y).initializer_.theta0_.architecture.n_classes == 2
    assert small(NeedsClasses, module__n_classes=3).fit(X).theta0_.architecture.n_classes == 3


def test_a_module_without_a_jacobian_is_told_to_do_without_the_detachment():
    net = seeded(lambda: nn.Sequential(nn.Embedding(7, 3), nn.Flatten()))
    X = tokens(40, length=1)
    with pytest.raises(ValueError, match="no Jacobian for the detachment term; set detachment_w"):
        small(net).fit(X)
    for coherence in (None, Coherence(n_neighbors=3, batch_size=16)):
        if coherence is not None:
            net = nn.Sequential(*net, nn.Linear(3, 3, bias=False)).requires_grad_()
        init = small(net, detachment_weight=0, coherence=coherence).fit(X)
        assert np.isfinite(init.best_loss_)


def test_precision_auto_is_the_module_s_own(monkeypatch):
    monkeypatch.setattr(_auto, "native_precision", lambda device: "bfloat16")
    X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    params = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    own = MMDInitializer(module=net, precision="auto", **params).fit(X)
    assert own.history_ == MMDInitializer(module=net, **params).fit(X).history_
    assert own.auto_params_["precision"] == "float32"


def first_relu(in_place):
    return nn.Sequential(
        nn.ReLU(inplace=in_place), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
    )


@pytest.mark.parametrize("coherence", [None, Coherence(n_neighbors=3, batch_size=16)])
@pytest.mark.parametrize("make", [Halved, first_relu])
def test_what_works_in_place_on_its_input_learns_what_others_do(make, coherence):
    X, found = rows(40), []
    for in_place in (True, False):
        own = X.copy()
        init = small(seeded(lambda in_place=in_place: make(in_place)), coherence=coherence)
        found.append(init.fit(own))
        assert init.why_functional_ == ""
        np.testing.assert_array_equal(own, X)
    assert found[0].samplers_ == found[1].samplers_
    assert_same(*found)
    assert found[0].score(X) == found[1].score(X)
