"""Any module through MMDInitializer and mmd_init_: what is learned, kept, copied and refused."""

import copy

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.preprocessing import normalize
from torch import nn
from torch.utils.data import TensorDataset

from helpers import default_dtype, seeded, threads
from module_zoo import MODULES, ConvNet, Halved, Words, images, rows, tokens
from nets import Conv, assert_same_fit, digit_images, digits
from sklearn_mmdinit import MLP, Coherence, MMDInitializer, NetClassifier, Theta0, mmd_init_

WALKS = Coherence(n_neighbors=3, batch_size=16)
X = digit_images(64)[0]


@pytest.fixture(autouse=True)
def windows_of_six_steps(window):
    window(6)  # two in a training with coherence would be judged


def small(module=ConvNet, **params):
    defaults = {"n_perturbations": 4, "batch_size": 16, "max_iter": 2}
    defaults |= {"learning_rate_init": 2e-3, "random_state": 0}
    return MMDInitializer(module=module, **{**defaults, **params})


def network(name, n_classes=2):
    return seeded(lambda: MODULES[name](n_classes))


@pytest.mark.parametrize("coherence", [None, WALKS])
def test_a_perceptron_that_is_given_as_a_module_is_the_built_in_one(coherence, tmp_path):
    X, own = rows(40), {"n_features": 6, "hidden_layer_sizes": (5, 4), "n_classes": 3}
    built_in = small(None, hidden_layer_sizes=(5, 4), n_classes=3, coherence=coherence).fit(X)
    named = {f"module__{name}": value for name, value in own.items()}
    by_class = small(MLP, coherence=coherence, **named).fit(X)
    assert by_class.history_ == built_in.history_
    instance = small(seeded(lambda: MLP(**own)), coherence=coherence).fit(X)
    for init in (built_in, by_class, instance):
        init.theta0_.save(tmp_path / "theta0.safetensors")
        loaded = Theta0.load(tmp_path / "theta0.safetensors")
        assert loaded.architecture == init.theta0_.architecture
        assert [weights.shape for weights in init.coefs_] == [(6, 5), (5, 4), (4, 3)]


def test_what_works_in_place_on_its_input_learns_what_others_do():
    X, found = rows(40), []
    for in_place in (True, False):
        init = small(seeded(lambda b=in_place: Halved(b)), coherence=WALKS).fit(X)
        found.append((init, init.transform(X), init.score(X)))
    np.testing.assert_array_equal(X, rows(40))
    assert_same_fit(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_an_instance_is_the_start_and_is_never_changed():
    module = network("convnet+bn", 3).eval().requires_grad_(True)
    module.conv1.bias.requires_grad_(False)
    module.fc1.weight.grad = torch.ones_like(module.fc1.weight)
    before = joblib.hash([p.detach().numpy() for p in module.state_dict().values()])
    init = small(module).fit(X)
    assert joblib.hash([p.detach().numpy() for p in module.state_dict().values()]) == before
    assert not any(part.training for part in module.modules())
    assert bool((module.fc1.weight.grad == 1).all())
    fresh = small(module, max_iter=0).fit(X).theta0_.arrays
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(fresh[name], value.numpy())
    np.testing.assert_array_equal(init.theta0_.arrays["conv1.bias"], fresh["conv1.bias"])
    started = init.to_module()
    assert not started.training
    assert not started.conv1.bias.requires_grad
    assert started.fc1.weight.grad is None
    assert not any(len(part._forward_hooks) for part in started.modules())
    # Later changes of the instance change nothing.
    score = init.score(X)
    module.train().requires_grad_(False)
    module.fc2 = nn.Linear(5, 7)
    assert init.score(X) == score
    assert clone(init).module is not module


# Of what PyTorch's compiler imports.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_compiled_is_taken_out():
    X, net = rows(40), nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    compiled = torch.compile(net)
    init, plain = small(compiled, random_state=0).fit(X), small(net, random_state=0).fit(X)
    assert_same_fit(init, plain)
    start = NetClassifier(compiled, warm_start_from=init, max_iter=0).fit(X, np.arange(40) % 3)
    assert start.theta0_.architecture.module.endswith("Sequential")
    own = {"n_perturbations": 4, "batch_size": 16, "learning_rate_init": 2e-3}
    mmd_init_(compiled, X, max_iter=2, random_state=0, **own)
    for name, array in init.theta0_.arrays.items():
        np.testing.assert_array_equal(net.state_dict()[name].numpy(), array)


def test_a_class_is_told_the_number_of_classes_where_it_takes_it():
    assert small(n_classes=5, max_iter=0).fit(X).theta0_.architecture.n_classes == 5
    for init, found in ((small(module__n_classes=3), 3), (small(ConvNet()), 2)):
        with pytest.raises(ValueError, match=f"returns {found} logits"):
            init.set_params(n_classes=4).fit(X)


@pytest.mark.parametrize("coherence", [None, WALKS, "of a classifier"])
def test_learning_has_gradients_wherever_it_is_called(coherence):
    module = network("convnet")

    def learned():
        if coherence == "of a classifier":
            clf = NetClassifier(module, max_iter=2, random_state=0).fit(X, np.arange(len(X)) % 2)
            return joblib.hash([p.numpy() for p in clf.module_.state_dict().values()])
        init = small(module, coherence=coherence).fit(X)
        return joblib.hash(([*init.theta0_.arrays.values()], init.history_, init.score(X)))

    plain = learned()
    for block in (torch.no_grad, torch.inference_mode):
        with block():
            assert learned() == plain
    with default_dtype(torch.float64):
        assert learned() == plain


def test_examples_of_any_shape_and_type():
    init = small().fit(X)
    assert init.n_features_in_ == 64
    with pytest.raises(ValueError, match=r"examples of shape \(64,\).*shape \(1, 8, 8\)"):
        init.transform(X.reshape(len(X), -1))
    np.testing.assert_allclose(np.linalg.norm(init.transform(X), axis=1), 1.0, rtol=1e-6)
    whole = (X * 16).round().astype(np.int8)
    assert_same_fit(small().fit(whole), small().fit(whole.astype(np.float32)))
    for given in (torch.from_numpy(X).requires_grad_(), torch.from_numpy(X).bfloat16()):
        expected = given.detach().float().numpy()
        assert_same_fit(small().fit(given), small().fit(expected))


def test_hidden_activations_are_the_inputs_of_the_last_linear_layer():
    X, init = images(20), small(network("convnet+bn", 3)).fit(images(20))
    module, seen = init.to_module().eval(), []
    module.fc2.register_forward_pre_hook(lambda layer, args: seen.append(args[0]))
    with torch.no_grad():
        module(torch.from_numpy(X))
    hidden = init.transform(X)
    H = seen[-1].numpy()
    np.testing.assert_allclose(hidden, normalize(H - H.mean(axis=0)), rtol=1e-4, atol=1e-5)
    names = [f"mmdinitializer{i}" for i in range(hidden.shape[1])]
    assert init.get_feature_names_out().tolist() == names


class Scaled(nn.Sequential):
    """Logits that are no layer's output."""

    def forward(self, x):
        return 2.0 * super().forward(x)


@pytest.mark.filterwarnings("ignore:(The paper's terms are slow|There is a performance drop)")
@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm", "orthogonal"])
def test_a_parametrized_head_is_a_linear_layer(norm):
    X, y = rows(40), np.arange(40) % 2
    parametrized = getattr(nn.utils.parametrizations, norm)

    def module(n_classes):
        return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), parametrized(nn.Linear(5, n_classes)))

    init = small(module(2), coherence="auto").fit(X)
    assert init.transform(X).shape == (40, 5) == (40, len(init.get_feature_names_out()))
    clf = NetClassifier(module(2), warm_start_from=init, max_iter=0).fit(X, y)
    np.testing.assert_array_equal(clf.theta0_.arrays["0.weight"], init.theta0_.arrays["0.weight"])


def test_a_module_without_hidden_activations_is_told():
    flat, conv = nn.Unflatten(1, (1, 6, 1)), nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 3, 1))
    pooled = nn.Sequential(flat, conv, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    scaled = Scaled(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for module in (nn.Linear(6, 3), pooled, scaled):
        with pytest.raises(ValueError, match=r"must end in an nn.Linear.*put one after"):
            small(module, coherence="auto").fit(rows(40))
    init = small(scaled).fit(rows(20))
    for method in (init.get_feature_names_out, lambda: init.transform(rows(20))):
        with pytest.raises(ValueError, match=r"the module .*Scaled must end in an nn.Linear"):
            method()


def test_embeddings_get_whole_numbers():
    ids = tokens(60, words=7)
    init = small(Words, n_classes=3, batch_size=20).fit(ids)
    assert init.n_features_in_ == 5
    assert init.theta0_.architecture.last_layer == "head"
    assert init.sampler_ == "functional"
    assert not init.theta0_.arrays["table.weight"][0].any(), "the row for padding"
    module = seeded(Words)
    before = copy.deepcopy(module.state_dict())
    mmd_init_(module, TensorDataset(torch.from_numpy(ids)), **SMALL)
    assert not torch.equal(module.table.weight, before["table.weight"])
    # Without a layer before it that is learned.
    table = nn.Embedding(20, 4).requires_grad_(False)
    net = nn.Sequential(table, nn.Flatten(), nn.Linear(20, 5), nn.Linear(5, 2))
    assert small(net).fit(tokens(16)).history_[0]["detachment"] != 1.0


SMALL = {"n_perturbations": 4, "max_iter": 2, "random_state": 0}


def test_sparse_gradients_are_dense_while_it_learns():
    def learned(sparse):
        table = nn.Embedding(7, 5, sparse=sparse)
        net = seeded(lambda: nn.Sequential(table, nn.Flatten(), nn.Linear(25, 3)))
        nn.init.ones_(table.weight)
        mmd_init_(net, tokens(40), **SMALL)
        assert table.sparse == sparse
        return net

    states = (learned(sparse).state_dict() for sparse in (False, True))
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_a_spectral_norm_follows_its_weights():
    def made():
        first = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 16))
        return nn.Sequential(first, nn.ReLU(), nn.Linear(16, 3))

    init = small(seeded(made), max_iter=60, learning_rate_init=5e-3).fit(rows(64))
    weight = init.to_module()[0].weight.detach()
    assert float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(1.0, abs=0.2)


def test_what_is_not_learned_is_as_before():
    module = network("convnet+bn").eval()
    module.drop.train()
    module.conv1.weight.requires_grad_(False)
    module.fc1.register_forward_hook(lambda *args: None)
    module.fc1.weight.grad = torch.ones_like(module.fc1.weight)
    modes = [part.training for part in module.modules()]
    ids, before = [id(p) for p in module.parameters()], copy.deepcopy(module.state_dict())
    mmd_init_(module, X, batch_size=16, **SMALL)
    assert [part.training for part in module.modules()] == modes
    assert [id(p) for p in module.parameters()] == ids
    assert [p.requires_grad for p in module.parameters()].count(False) == 1
    assert [len(p._forward_hooks) for p in module.modules()].count(1) == 1
    assert bool((module.fc1.weight.grad == 1).all())
    changed = {n for n, value in module.state_dict().items() if not torch.equal(value, before[n])}
    assert "conv1.weight" not in changed
    assert {"fc2.weight", "norm1.running_mean", "norm1.num_batches_tracked"} <= changed


def test_what_is_not_learned_is_not_rounded():
    # In double precision, with numbers that float32 has not.
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    module.register_buffer("count", torch.tensor(16777217.0, dtype=torch.float64))
    module[0].weight.requires_grad_(False)[0, 0] = 0.1
    before = copy.deepcopy(module.state_dict())
    mmd_init_(module, rows(40), **SMALL)
    state = module.state_dict()
    assert torch.equal(state["count"], before["count"])
    assert torch.equal(state["0.weight"], before["0.weight"])
    assert not torch.equal(state["2.weight"], before["2.weight"])
    assert torch.equal(state["2.weight"].float().double(), state["2.weight"])


@pytest.mark.parametrize(("value", "side", "rate"), [(np.nan, 8, 1), (0, 5, 1), (1, 8, 1e30)])
def test_after_an_error_the_module_is_unchanged(value, side, rate):
    module, data = network("convnet+bn"), np.full((8, 1, side, side), value, np.float32)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises((RuntimeError, ValueError), match=r"NaN|shape|finite"):
        mmd_init_(module, data, **SMALL, learning_rate_init=rate)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert module.training


CONV = nn.Sequential(nn.Unflatten(1, (1, 8, 8)), seeded(lambda: Conv(width=8)))


@pytest.mark.parametrize(
    ("params", "bound"),
    [
        ({"hidden_layer_sizes": (32, 32), "n_perturbations": 64}, 0.0),
        ({"hidden_layer_sizes": (64, 64), "n_perturbations": 256}, 1.5e-6),  # shared by threads
        ({"module": CONV, "n_perturbations": 256}, 1.5e-6),
    ],
    ids=["small", "large", "convolution"],
)
def test_the_number_of_threads_changes_rounding_at_most(params, bound):
    X, found = digits(64)[0], []
    for n in (1, 2):
        with threads(n):
            init = MMDInitializer(**params, max_iter=1, random_state=0).fit(X)
        found.append(np.concatenate([array.ravel() for array in init.theta0_.arrays.values()]))
    assert np.abs(found[0] - found[1]).max() <= bound
