"""The main properties on a CUDA device."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from helpers import Unknown, normalized_mlp, seeded, uniform_simplex
from module_zoo import rows
from nets import Conv, digit_images
from sklearn_mmdinit import MLP, Coherence, MMDInitializer, MMDObjective, NetClassifier, mmd_init_
from sklearn_mmdinit._base.environment import torch_device
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.losses import uniformity
from sklearn_mmdinit.networks import gram, noise
from sklearn_mmdinit.training import cuda_graph
from sklearn_mmdinit.training.state import State

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")


@pytest.fixture(autouse=True)
def windows_of_sixteen_steps(window):
    window(16)


X = StandardScaler().fit_transform(load_digits().data[:256])


def tiny(**params):
    defaults = {"max_iter": 4, "device": "cuda", "n_perturbations": 24}
    defaults |= {"learning_rate_init": 5e-3, "random_state": 0}
    if "module" not in params:
        defaults["hidden_layer_sizes"] = (12, 8)
    return MMDInitializer(**{**defaults, **params})


def test_draws_are_functions_of_seed_and_step():
    assert torch_device("auto").type == "cuda"
    random = StepRandom(4, "cuda")
    first = random.at(9).normal(300, 300).clone()
    random.at(3).simplex(5, 4)
    assert torch.equal(random.at(9).normal(300, 300), first)
    assert not torch.equal(random.at(10).normal(300, 300), first)
    assert abs(float(first.mean())) < 0.02
    assert float(first.std()) == pytest.approx(1, abs=0.02)


NORMALIZED = normalized_mlp(64, 12, 8, 2)
COHERENCE = {"coherence": Coherence(batch_size=32)}
VARIANTS = {
    "relu": {},
    "tanh": {"activation": "tanh"},
    "batch norm": {"module": NORMALIZED},
    "three classes": {"n_classes": 3},
    "functional": {"module": Unknown, "module__hidden_layer_sizes": (12, 8)},
    "coherence": COHERENCE,
    "coherence, batch norm": COHERENCE | {"module": NORMALIZED},
}


@pytest.mark.parametrize("params", VARIANTS.values(), ids=VARIANTS)
def test_the_loss_falls_and_the_score_rises(params):
    init = tiny(**params).fit(X)
    start = tiny(**params, max_iter=0).fit(X)
    assert init.best_loss_ < 0.9 * init.loss_curve_[0]
    assert init.score(X) > start.score(X) + 0.02
    arrays = init.theta0_.arrays.values()
    assert all(type(array) is np.ndarray for array in arrays), "what is learned is on the host"


def assert_near(a, b):
    """Two trainings that take the same steps: sums on the device may be added up in any order."""
    np.testing.assert_allclose(a.loss_curve_, b.loss_curve_, rtol=1e-3)
    for name, array in b.theta0_.arrays.items():
        np.testing.assert_allclose(a.theta0_.arrays[name], array, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("network", [{}, {"module": NORMALIZED}])
def test_an_interrupted_training_resumes(network, tmp_path, window, monkeypatch):
    params, end_step = network | {"learning_rate_init": 1e-4, "max_iter": 2}, State.end_step
    window(3)
    init = tiny(**params, checkpoint=tmp_path / "a.safetensors")

    def interrupted(state, *args):
        if state.step == 10:
            raise KeyboardInterrupt
        return end_step(state, *args)

    monkeypatch.setattr(State, "end_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        init.fit(X)
    monkeypatch.setattr(State, "end_step", end_step)
    assert_near(init.fit(X), tiny(**params).fit(X))


@pytest.fixture
def recordings(monkeypatch):
    """Whether each training that was to be recorded has been."""
    found, record = [], cuda_graph.RecordedStep._record

    def noting(own, batch):
        record(own, batch)
        found.append(own._graph is not None)

    monkeypatch.setattr(cuda_graph.RecordedStep, "_record", noting)
    return found


@pytest.mark.parametrize(
    "params",
    [*VARIANTS.values(), {"module": Conv, "module__width": 4}],
    ids=[*VARIANTS, "convolutions"],
)
def test_recorded_steps_are_those_of_single_operations(params, recordings, monkeypatch, window):
    window(1)
    data = digit_images(256, 2)[0] if params.get("module") is Conv else X
    params = {"learning_rate_init": 1e-4} | params
    recorded = tiny(**params).fit(data)
    # Those of the functional sampler where PyTorch can record what vmap does.
    functional = params.get("module") in (Conv, Unknown)
    assert recordings == [True] or functional
    recordings.clear()
    monkeypatch.setattr(cuda_graph, "_BY_OPERATIONS", 1 << 30)
    launched = tiny(**params).fit(data)
    assert not recordings
    assert_near(recorded, launched)


def test_networks_in_several_chunks_are_recorded(recordings, monkeypatch, window):
    window(32)
    whole = tiny(learning_rate_init=1e-4).fit(X)
    monkeypatch.setattr(gram, "NUMBERS_ON_GPU", 1 << 15)
    chunks = tiny(learning_rate_init=1e-4).fit(X)
    assert recordings == [True, True]
    assert chunks.loss_curve_[0] == pytest.approx(whole.loss_curve_[0], rel=0.1)
    # What is computed twice draws twice, from where its generator has gone back to.
    monkeypatch.setattr(noise, "NUMBERS_KEPT", 1)
    twice = tiny(learning_rate_init=1e-4).fit(X)
    assert len(recordings) == 2
    np.testing.assert_allclose(twice.loss_curve_, chunks.loss_curve_, rtol=1e-3)


class Waiting(nn.Module):
    """Waits for the device in each pass."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 2)

    def forward(self, X):
        return self.linear(X) * torch.tensor(1.0).to(X.device)


def test_a_module_that_waits_for_the_device_learns_unrecorded(recordings):
    init = tiny(module=Waiting).fit(X)
    assert recordings == []
    assert init.best_loss_ < init.loss_curve_[0]
    assert float(torch.randn(3, device="cuda").norm()) > 0, "the device draws as before"


def test_terms_and_activations_are_those_of_the_cpu():
    # Other perturbations of the same law.
    init = tiny(n_perturbations=512).fit(X)
    score, hidden = init.score(X), init.transform(X)
    init.set_params(device="cpu")
    assert score == pytest.approx(init.score(X), abs=0.03)
    np.testing.assert_allclose(hidden, init.transform(X), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("n_classes", [2, 10])
def test_uniformity_and_its_gradient_are_those_of_the_cpu(n_classes):
    draws, U = (uniform_simplex(150, *shape, n_classes).float() for shape in ((8,), ()))
    values, slopes = [], []
    for device in ("cpu", "cuda"):
        P = draws.square().to(device)
        P = (P / P.sum(-1, keepdim=True)).requires_grad_()
        values.append(uniformity(P, U.to(device)))
        slopes += [slope.cpu() for slope in torch.autograd.grad(values[-1], P)]
    assert float(values[1]) == pytest.approx(float(values[0]), rel=1e-4)
    largest = float(slopes[0].abs().max())
    torch.testing.assert_close(slopes[1], slopes[0], atol=1e-3 * largest, rtol=1e-3)


@pytest.mark.parametrize("sampler", ["gram", "functional"])
def test_the_objective_has_the_law_and_the_gradients_of_the_cpu(sampler):
    net = seeded(lambda: MLP(6, (16, 16), 3))
    batch, found = torch.from_numpy(rows(32)), []
    for device in ("cpu", "cuda"):
        net.to(device)
        objective = MMDObjective(512, sampler=sampler, generator=torch.Generator().manual_seed(0))
        terms = objective(net, batch.to(device))
        terms.total.backward()
        assert {term.device.type for term in terms} == {device}
        found.append((*(term.detach().cpu() for term in terms), net.linears[0].weight.grad.cpu()))
        net.zero_grad()
    torch.testing.assert_close(found[0][:-1], found[1][:-1], rtol=0.1, atol=0.05)
    a, b = (own[-1].flatten() for own in found)
    assert float(torch.nn.functional.cosine_similarity(a, b, dim=0)) > 0.9
    with torch.autocast("cuda", torch.bfloat16):
        half = MMDObjective(512, sampler=sampler)(net, batch.cuda())
    assert half.total.dtype == torch.float32
    assert float(half.total.detach()) == pytest.approx(float(found[1][0]), abs=0.1)


def test_a_recorded_training_under_autocast_is_near_that_of_single_precision():
    images, losses = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), []
    own = {"n_perturbations": 24, "max_iter": 10, "random_state": 0} | COHERENCE
    for half in (False, True):
        net = seeded(lambda: Conv(batch_norm=True)).cuda()
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            history = mmd_init_(net, images, **own)
        losses.append(history[-1]["coherence"])
    assert losses[1] != losses[0]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_a_module_learns_there_and_is_fine_tuned():
    images, y = digit_images(256, 2)
    init = tiny(module=Conv, module__width=16, coherence=Coherence(batch_size=64))
    init.fit(images)
    score = init.set_params(n_perturbations=512).score(images)
    assert score == pytest.approx(init.set_params(device="cpu").score(images), abs=0.05)
    clf = NetClassifier(warm_start_from=init, device="cuda", random_state=0, max_iter=30)
    assert clf.fit(images, y).score(images, y) > 0.8
    assert next(clf.module_.parameters()).device.type == "cuda"


def test_a_stream_is_augmented_and_learned_from_where_the_module_is():
    rows, seen, found = torch.from_numpy(X).float(), set(), []

    def noisy(x):
        seen.add(x.device.type)
        return x + 0.1 * torch.randn_like(x)

    for _ in range(2):
        loader = DataLoader(TensorDataset(rows, rows), 32, shuffle=True, pin_memory=True)
        params = {"coherence": Coherence(augmentation=noisy), "n_perturbations": 8}
        net, before = seeded(lambda: MLP(64, (16,), 3)).cuda(), torch.cuda.get_rng_state()
        found.append(mmd_init_(net, loader, views=2, max_iter=4, random_state=0, **params))
        assert {p.device.type for p in net.parameters()} == {"cuda"}
        assert torch.equal(torch.cuda.get_rng_state(), before)
    assert seen == {"cuda"}
    assert found[0] == found[1]
