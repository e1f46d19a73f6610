"""Theta0 of a module: in a file, back into a module of its kind alone, and into skorch."""

import json
import warnings

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from skorch import NeuralNetClassifier
from torch import nn

from module_zoo import digit_images, seeded
from protocol.networks import ConvNet, ResidualNet
from sklearn_mmdinit import (
    MMDInitializer,
    ModuleArchitecture,
    RandomLabelInitializer,
    Theta0,
    load_theta0,
    save_theta0,
)


@pytest.fixture(scope="module")
def data():
    X, y = digit_images(48)
    return X, y % 2


@pytest.fixture(scope="module")
def init(data):
    module = {"module": ConvNet, "module__width": 3, "module__batch_norm": True}
    return MMDInitializer(
        **module, n_perturbations=4, max_iter=1, batch_size=16, random_state=0
    ).fit(data[0])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "theta0.safetensors"


def test_all_of_the_state_is_there(init):
    arrays = init.theta0_.arrays
    assert arrays.keys() == init.to_module().state_dict().keys()
    assert arrays["norm1.running_var"].dtype == np.float32
    assert arrays["norm1.num_batches_tracked"].dtype == np.int64
    assert int(arrays["norm1.num_batches_tracked"]) > 0
    assert all(type(array) is np.ndarray for array in arrays.values())


def test_round_trip_is_exact(init, path):
    save_theta0(path, init)
    loaded = load_theta0(path)
    assert loaded.architecture == init.theta0_.architecture
    assert loaded.architecture.module == "protocol.networks.ConvNet"
    assert dict(loaded.architecture.parameters) == {"width": "3", "batch_norm": "True"}
    assert loaded.arrays.keys() == init.theta0_.arrays.keys()
    for name, array in init.theta0_.arrays.items():
        assert (loaded.arrays[name].dtype, loaded.arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(loaded.arrays[name], array)


def test_a_module_of_its_kind_starts_there(init, path):
    save_theta0(path, init)
    module = ConvNet(2, 3, batch_norm=True).eval()
    theta0 = load_theta0(path, module)
    assert isinstance(theta0, Theta0)
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), theta0.arrays[name], err_msg=name)
    assert not module.training


class Other(ConvNet):
    """Another class with the same arrays."""


REFUSED = {
    "class": (lambda: Other(2, 3, batch_norm=True), r"ConvNet, not of \S*\.Other"),
    "kind": (lambda: ResidualNet(2, 3), r"ConvNet, not of protocol.networks.ResidualNet"),
    "shape": (lambda: ConvNet(2, 4, batch_norm=True), r"'conv1.weight' has shape \(3, 1, 3, 3\)"),
    "less": (lambda: ConvNet(2, 3), "an array 'norm1.bias', which the module .* has not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_one_is_refused_by_name_and_unchanged(name, init, path):
    make, words = REFUSED[name]
    save_theta0(path, init)
    module = seeded(make)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        load_theta0(path, module)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_a_missing_array_is_named(data, path):
    init = MMDInitializer(
        module=ConvNet(2, 3), n_perturbations=2, max_iter=0, batch_size=16, random_state=0
    ).fit(data[0])
    save_theta0(path, init)
    with pytest.raises(ValueError, match=r"no array 'norm1\.bias', which the module"):
        load_theta0(path, ConvNet(2, 3, batch_norm=True))


def test_arrays_that_do_not_fit_the_description_are_refused(init, path):
    save_theta0(path, init)
    arrays, text = load_file(path), init.theta0_.architecture.to_json()
    del arrays["fc2.bias"]
    save_file(arrays, path, metadata={"sklearn_mmdinit.module": text})
    with pytest.raises(ValueError, match="names and shapes of the digest"):
        load_theta0(path)
    broken = json.loads(text)
    del broken["digest"]
    save_file(arrays, path, metadata={"sklearn_mmdinit.module": json.dumps(broken)})
    with pytest.raises(ValueError, match="not the description of a module"):
        load_theta0(path)


def test_a_perceptron_is_loaded_into_one(data, path):
    flat = data[0].reshape(48, -1)
    init = MMDInitializer((5,), n_perturbations=2, max_iter=0, random_state=0).fit(flat)
    save_theta0(path, init)
    module = init.to_module()
    nn.init.zeros_(module.linears[0].weight)
    load_theta0(path, module)
    np.testing.assert_array_equal(module.linears[0].weight.detach().numpy(), init.coefs_[0].T)
    with pytest.raises(ValueError, match=r"no array 'bias', which the module torch\S*Linear has"):
        load_theta0(path, nn.Linear(64, 2))


def test_description_as_json():
    description = ModuleArchitecture("a.B", (("n", "3"),), (1, 8), 3, "0" * 16, "head", ("x", "y"))
    assert ModuleArchitecture.from_json(description.to_json()) == description
    assert description.n_features == 8


# skorch


def net_from(make, **params):
    defaults = {"max_epochs": 2, "lr": 0.05, "verbose": 0, "train_split": None, "batch_size": 16}
    return NeuralNetClassifier(make, criterion=nn.CrossEntropyLoss, **{**defaults, **params})


def assert_starts_there(net, init):
    for name, value in net.module_.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), init.theta0_.arrays[name], err_msg=name)


@pytest.mark.parametrize("kind", ["module", "perceptron", "random labels"])
def test_skorch_builds_from_it_every_time(kind, init, data):
    X, y = data
    if kind != "module":
        X = X.reshape(48, -1)
        make = {"perceptron": MMDInitializer, "random labels": RandomLabelInitializer}[kind]
        init = make((5,), max_iter=1, random_state=0).fit(X)
    net = net_from(init.to_module).initialize()
    assert_starts_there(net, init)
    net.fit(X, y)
    assert not np.array_equal(
        next(net.module_.parameters()).detach().numpy(), next(iter(init.theta0_.arrays.values()))
    )
    # Its fit begins anew, and so at theta0.
    assert_starts_there(net.set_params(lr=0.0, max_epochs=0).fit(X, y), init)
    assert_starts_there(clone(net).initialize(), init)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        scores = cross_val_score(
            net.set_params(lr=0.05, max_epochs=20), X, y.astype(np.int64), cv=2
        )
    assert scores.shape == (2,)
    assert scores.mean() > 0.5


class Masked(nn.Module):
    """Keeps a mask of -inf, as causal attention does."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 4), nn.Linear(4, 2)
        self.register_buffer("mask", torch.triu(torch.full((4, 4), -torch.inf), 1))

    def forward(self, x):
        scores = self.body(x).unsqueeze(1) + self.mask
        return self.head(scores.softmax(-1)[:, -1])


def test_a_mask_of_infinities_goes_with_theta0(tmp_path):
    init = MMDInitializer(module=Masked, n_perturbations=4, max_iter=1, random_state=0)
    X = np.random.default_rng(0).normal(size=(32, 6))
    module = init.fit(X).to_module()
    assert torch.isinf(module.mask).sum() == 6
    save_theta0(tmp_path / "a.safetensors", init)
    found = load_theta0(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found.arrays["mask"], module.mask)
    arrays = dict(found.arrays, mask=np.full((4, 4), np.nan, np.float32))
    with pytest.raises(ValueError, match=r"'mask' holds NaN$"):
        Theta0(found.architecture, arrays)


def test_a_perceptron_with_batch_norm_is_a_module_like_others(tmp_path):
    X = np.random.default_rng(0).normal(size=(16, 5)).astype("float32")
    init = MMDInitializer(
        (4,), batch_norm=True, n_perturbations=2, batch_size=8, max_iter=1, random_state=0
    ).fit(X)
    save_theta0(tmp_path / "theta0.safetensors", init)
    module = init.to_module()
    with torch.no_grad():
        module.linear_layers[0].weight.zero_()
    load_theta0(tmp_path / "theta0.safetensors", module=module)
    np.testing.assert_array_equal(
        module.state_dict()["linears.0.weight"], init.theta0_.arrays["linears.0.weight"]
    )
