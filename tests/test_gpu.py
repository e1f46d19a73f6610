"""The main properties on a CUDA device."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from helpers import threads
from protocol.networks import MODULES
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    RandomLabelInitializer,
)
from sklearn_mmdinit._compute import StepRandom, torch_device
from sklearn_mmdinit._network import MLP, Architecture
from sklearn_mmdinit._network.inits import initialize_
from sklearn_mmdinit._pretraining.recording import RecordedSteps, steps_on
from sklearn_mmdinit._pretraining.steps import Steps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

KINDS = pytest.mark.parametrize(
    "kind", [MMDInitializer, RandomLabelInitializer], ids=lambda kind: kind.__name__
)


@pytest.fixture(scope="module")
def X():
    return StandardScaler().fit_transform(load_digits().data[:256])


def tiny(kind=MMDInitializer, **params):
    defaults = {"hidden_layer_sizes": (12, 8), "max_iter": 4, "window": 8, "device": "cuda"}
    defaults |= {"learning_rate_init": 5e-3, "random_state": 0}
    if kind is MMDInitializer:
        defaults |= {"n_perturbations": 24}
    return kind(**{**defaults, **params})


def assert_close_theta0(a, b, **tolerance):
    assert a.theta0_.architecture == b.theta0_.architecture
    for name, array in a.theta0_.arrays.items():
        np.testing.assert_allclose(array, b.theta0_.arrays[name], err_msg=name, **tolerance)


def test_auto_takes_it():
    assert torch_device("auto").type == "cuda"


def test_draws_are_functions_of_seed_and_step():
    random = StepRandom(4, "cuda")
    first = random.at(9).normal(300, 300).clone()
    random.at(3).simplex(5, 4)
    assert torch.equal(random.at(9).normal(300, 300), first)
    assert random.split(1) == [random]
    assert not torch.equal(random.at(10).normal(300, 300), first)
    assert abs(float(first.mean())) < 0.02
    assert float(first.std()) == pytest.approx(1, abs=0.02)
    U = random.simplex(50_000, 3)
    torch.testing.assert_close(U.sum(1), torch.ones_like(U[:, 0]))
    torch.testing.assert_close(U.mean(0), torch.full_like(U[0], 1 / 3), atol=5e-3, rtol=0)


def learn(X, recorded):
    """Sums of the terms over two windows, and the weights after them."""
    device = torch.device("cuda")
    module = initialize_(MLP(Architecture(64, (12, 8), 2)), "xavier", torch.Generator()).to(device)
    optimizer = torch.optim.Adam(module.parameters(), lr=5e-3, fused=True, capturable=True)
    random = StepRandom(0, device)
    objective = tiny()._objective()
    if recorded:
        steps = steps_on(device, module.train(), objective, optimizer, random)
        assert isinstance(steps, RecordedSteps)
    else:
        steps = Steps(module.train(), objective, optimizer, random)
    batches = torch.from_numpy(X.astype(np.float32)).to(device).view(8, 32, 64)
    sums = [steps.run(batches[:5], 0, lambda: None), steps.run(batches[5:], 5, lambda: None)]
    return sums, [parameter.detach().cpu() for parameter in module.parameters()]


def test_a_graph_repeats_the_steps_that_would_have_been_taken(X):
    (sums, weights), (expected_sums, expected_weights) = learn(X, True), learn(X, False)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-3)
    for own, expected in zip(weights, expected_weights, strict=True):
        torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)


def test_nothing_waits_for_the_device_inside_a_window(X):
    device = torch.device("cuda")
    module = MLP(Architecture(64, (12, 8), 2)).to(device).train()
    batch = torch.from_numpy(X[:32].astype(np.float32)).to(device)
    objective, random = tiny()._objective(), StepRandom(0, device)
    objective(module, batch, random)  # constants go to the device once
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.backward(objective(module, batch, random.at(1))[0])
    finally:
        torch.cuda.set_sync_debug_mode(before)


FIRST_ROUND = tiny(coherence=Coherence(batch_size=32), output="hidden")
VARIANTS = {
    "relu": {},
    "tanh": {"activation": "tanh"},
    "batch norm": {"batch_norm": True},
    "three classes": {"n_classes": 3},
    "closed form": {"reference": "closed_form"},
    "direct": {"sampler": "direct"},
    "gram": {"sampler": "gram"},
    "coherence": {"coherence": Coherence(batch_size=32), "learning_rate": "cosine", "gain": 1},
    "second round": {
        "coherence": Coherence(batch_size=32, embedding=FIRST_ROUND),
        "learning_rate": "cosine",
        "gain": 1,
    },
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_the_loss_falls_and_the_score_rises(params, X):
    init = tiny(**params).fit(X)
    start = tiny(**params, max_iter=0).fit(X)
    assert init.best_loss_ < 0.9 * init.loss_curve_[0]
    assert init.score(X) > start.score(X) + 0.02
    assert all(type(W) is np.ndarray for W in init.coefs_), "what is learned is on the host"


def test_threads_of_the_cpu_change_nothing(X):
    # Large enough for a team of threads, were it the CPU.
    large = {"hidden_layer_sizes": (392, 392), "n_perturbations": 256, "max_iter": 1}
    found = []
    for n in (1, 4):
        with threads(n):
            found.append(tiny(**large).fit(X))
    assert_close_theta0(*found, rtol=1e-4, atol=1e-5)


@KINDS
def test_both_devices_start_from_the_same_weights(kind, X):
    assert_close_theta0(
        tiny(kind, max_iter=0).fit(X), tiny(kind, max_iter=0, device="cpu").fit(X), rtol=0
    )


@KINDS
@pytest.mark.parametrize("batch_norm", [False, True])
def test_fit_is_max_iter_times_partial_fit(kind, batch_norm, X):
    # Sums on the device may be added up in any order.
    params = {"batch_norm": batch_norm, "window": 3, "learning_rate_init": 1e-4, "max_iter": 2}
    whole, passes = tiny(kind, **params).fit(X), tiny(kind, **params)
    for _ in range(whole.max_iter):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(X)))
    assert_close_theta0(passes, whole, atol=1e-5)
    np.testing.assert_allclose(passes.loss_curve_, whole.loss_curve_, rtol=1e-3)


@KINDS
def test_hidden_activations_are_those_of_the_cpu(kind, X):
    init = tiny(kind, output="hidden").fit(X)
    on_device = init.transform(X)
    assert type(on_device) is np.ndarray
    np.testing.assert_allclose(
        on_device, init.set_params(device="cpu").transform(X), rtol=1e-2, atol=1e-2
    )


def test_the_terms_agree_with_those_of_the_cpu(X):
    # Other perturbations of the same law.
    init = tiny(n_perturbations=512).fit(X)
    on_device = init.score(X)
    assert on_device == pytest.approx(init.set_params(device="cpu").score(X), abs=0.03)


@KINDS
def test_global_generators_are_left_alone(kind, X):
    before = joblib.hash(torch.cuda.get_rng_state().numpy())
    tiny(kind).fit(X).score(X)
    assert joblib.hash(torch.cuda.get_rng_state().numpy()) == before


@KINDS
def test_a_classifier_starts_there_and_learns(kind, X):
    y = load_digits().target[:256] % 2
    init = tiny(kind).fit(X)
    clf = MLPClassifier(warm_start_from=init, device="cuda", random_state=0, max_iter=0).fit(X, y)
    assert_close_theta0(clf, init, rtol=0)
    clf.set_params(max_iter=20).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert clf.predict_proba(X).shape == (256, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clf)).predict(X), clf.predict(X))


def test_rounded_products_have_the_loss_of_others(X):
    inits = [tiny(precision=name, n_perturbations=256).fit(X) for name in ("float32", "bfloat16")]
    scores = [init.score(X) for init in inits]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(scores[1], abs=0.03)


MODULE_NAMES = pytest.mark.parametrize("name", MODULES)


def tiny_module(name, **params):
    torch.manual_seed(0)
    defaults = {"module": MODULES[name](2), "n_perturbations": 24, "max_iter": 2, "window": 4}
    defaults |= {"learning_rate_init": 1e-3, "device": "cuda", "random_state": 0}
    return MMDInitializer(**{**defaults, **params})


@pytest.fixture(scope="module")
def pictures():
    return load_digits().images[:256, None] / 8 - 1


@MODULE_NAMES
def test_modules_have_the_terms_of_the_cpu(name, pictures):
    init = tiny_module(name, n_perturbations=512, max_iter=1).fit(pictures)
    assert np.isfinite(init.loss_curve_).all()
    on_device = init.score(pictures)
    assert on_device == pytest.approx(init.set_params(device="cpu").score(pictures), abs=0.05)


@MODULE_NAMES
def test_passes_of_modules_are_those_of_fit(name, pictures):
    whole, passes = tiny_module(name).fit(pictures), tiny_module(name)
    for _ in range(whole.max_iter):
        passes = pickle.loads(pickle.dumps(passes.partial_fit(pictures)))
    np.testing.assert_allclose(passes.loss_curve_, whole.loss_curve_, rtol=1e-2)


@MODULE_NAMES
def test_any_module_starts_there_and_learns(name, pictures):
    y = load_digits().target[:256] % 2
    init = tiny_module(name, coherence=Coherence(batch_size=64)).fit(pictures)
    clf = NetClassifier(warm_start_from=init, device="cuda", random_state=0, max_iter=30)
    assert clf.fit(pictures, y).score(pictures, y) > 0.8
    assert next(clf.module_.parameters()).device.type == "cuda"
