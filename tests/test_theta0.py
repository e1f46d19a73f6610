"""Theta0: its gain, the arrays that carry it, and its files."""

import copy
import io
import json
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

from helpers import seeded
from nets import Conv, assert_same_arrays, digit_images
from sklearn_mmdinit import (
    MLP,
    Architecture,
    MMDInitializer,
    NetClassifier,
    Theta0,
    load_theta0,
    save_theta0,
)
from sklearn_mmdinit.theta0 import theta0_in
from sklearn_mmdinit.warm_start import Theta0Array, attach_theta0, attached_theta0

DATA = Path(__file__).parent / "data"


def perceptron(sizes=(5, 4), activation="relu", batch_norm=False, n_features=3, n_classes=2):
    """A theta0 of random arrays."""
    shape = n_features, sizes, n_classes, activation, batch_norm
    architecture, rng = Architecture.of_perceptron(*shape), np.random.default_rng(0)
    arrays = {
        name: rng.uniform(-1, 1, array.shape) if array.ndim else array.numpy()
        for name, array in MLP(*shape).state_dict().items()
    }
    return Theta0(architecture, arrays)


@pytest.fixture
def theta0():
    return perceptron()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "theta0.safetensors"


@pytest.fixture(scope="module")
def of_module():
    """An initializer of a module of this project's tests."""
    init = MMDInitializer(
        module=Conv, module__width=3, module__batch_norm=True, n_perturbations=4, random_state=0
    )
    return init.set_params(max_iter=1, batch_size=16).fit(digit_images(48)[0])


# what it is


def test_all_of_the_state_of_a_module_is_there(of_module):
    theta0, module = of_module.theta0_, of_module.to_module()
    assert theta0.arrays.keys() == module.state_dict().keys()
    assert int(theta0.arrays["norm.num_batches_tracked"]) > 0
    assert all(type(array) is np.ndarray for array in theta0.arrays.values())
    assert dict(theta0.architecture.parameters) == {"width": "3", "batch_norm": "True"}
    for ask in (lambda: theta0.coefs, lambda: of_module.coefs_):
        with pytest.raises(AttributeError, match=r"only a multi-layer perceptron .*Conv"):
            ask()
    with pytest.raises(ValueError, match=r"to_module\(\) of the initializer"):
        theta0.to_module()


# gain


@pytest.mark.parametrize("factors", [(4.0, 4.0), (0.5, 30.0)])
def test_a_gain_leaves_the_function_and_scales_hidden_activations(factors, theta0):
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    seen = []
    for own in (theta0, theta0.with_gain(factors)):
        module = own.to_module()
        for linear in module.linears:
            linear.register_forward_pre_hook(lambda layer, args: seen.append(args[0].clone()))
        seen.append(module(X))
    before, after = seen[1:4], seen[5:8]
    for own, other, scale in zip(after, before, [*np.cumprod(factors), 1.0], strict=True):
        torch.testing.assert_close(own, other * float(scale), rtol=1e-4, atol=1e-5)


def test_a_gain_of_one_is_theta0_itself_and_the_inverse_undoes(theta0):
    assert theta0.with_gain((1.0, 1.0)) is theta0
    assert theta0.without_gain() is theta0
    twice = theta0.with_gain((3.0, 7.0)).with_gain((2.0, 0.5))
    assert twice.gain == (6.0, 3.5)
    there_and_back = twice.without_gain()
    assert there_and_back.gain == ()
    for name, array in theta0.arrays.items():
        np.testing.assert_allclose(there_and_back.arrays[name], array, rtol=1e-6)


# arrays that carry it


@pytest.fixture
def X():
    return np.arange(12.0).reshape(4, 3)


def test_whole_copies_keep_theta0(X, theta0, tmp_path):
    tagged = attach_theta0(X, theta0)
    joblib.dump(tagged, tmp_path / "X.joblib")
    copies = copy.copy(tagged), copy.deepcopy(tagged), pickle.loads(pickle.dumps(tagged))
    for copied in (*copies, joblib.load(tmp_path / "X.joblib")):
        assert type(copied) is Theta0Array
        np.testing.assert_array_equal(copied, X)
        assert attached_theta0(copied).architecture == theta0.architecture
        assert_same_arrays(attached_theta0(copied), theta0)
        assert not np.shares_memory(copied, X)


@pytest.mark.parametrize("protocol", [*range(pickle.HIGHEST_PROTOCOL + 1), "torch.save"])
def test_a_fitted_initializer_is_saved_by_any_protocol(protocol, of_module, X, theta0):
    def copied(value):
        if protocol != "torch.save":
            return pickle.loads(pickle.dumps(value, protocol))
        torch.save(value, buffer := io.BytesIO())
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    images, labels = digit_images(48)
    clf = NetClassifier(warm_start_from=of_module, max_iter=0).fit(images, labels % 2)
    for value in (theta0, of_module, clf, attach_theta0(X, theta0)):
        before, after = (theta0_in(v) or attached_theta0(v) for v in (value, copied(value)))
        assert_same_arrays(after, before)
        assert not any(array.flags.writeable for array in after.arrays.values())


def test_a_derived_array_has_lost_theta0_and_says_so(X, theta0):
    tagged = attach_theta0(X, theta0)
    stacked = np.hstack([np.ones((4, 1)), tagged])
    for derived in (tagged[[0, 2]], tagged[:, :2], tagged + 1, tagged.T, stacked):
        assert attached_theta0(derived) is None
        assert isinstance(derived, Theta0Array)
    assert attached_theta0(tagged) is theta0, "the array it came from keeps its own"
    assert np.shares_memory(tagged, X)
    assert isinstance(tagged.sum(), np.float64)
    for other in (X, [[1.0]], "text", None):
        assert attached_theta0(other) is None


# files


def assert_same_file(loaded, theta0):
    assert (loaded.architecture, loaded.gain) == (theta0.architecture, theta0.gain)
    assert_same_arrays(loaded, theta0)
    for name, array in theta0.arrays.items():
        assert (loaded.arrays[name].dtype, loaded.arrays[name].shape) == (array.dtype, array.shape)


def test_round_trip_is_exact(theta0, of_module, path):
    turned = {name: np.asfortranarray(array) for name, array in theta0.arrays.items()}
    for own in (
        theta0,
        Theta0(theta0.architecture, turned, (2.0, 3.5)),
        perceptron(batch_norm=True, activation="tanh"),
        perceptron(n_features=np.int64(3), n_classes=np.int64(2)),
        of_module.theta0_,
    ):
        save_theta0(path, own)
        assert_same_file(load_theta0(str(path)), own)
    save_theta0(path, SimpleNamespace(theta0_=theta0))
    assert_same_file(load_theta0(path), theta0)


def test_a_file_is_replaced_whole_or_not_at_all(theta0, path, monkeypatch):
    save_theta0(path, theta0)
    before = path.read_bytes()

    def fail(*args):
        raise OSError(28, "disk full")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="disk full"):
                save_theta0(path, perceptron(batch_norm=True))
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == [path.name], "nothing half-written is left"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_replaced_file_keeps_its_permissions_and_the_link_to_it(mode, theta0, path, tmp_path):
    path.write_bytes(b"")
    path.chmod(mode)
    (link := tmp_path / "link.safetensors").symlink_to(path)
    save_theta0(link, theta0)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == mode
    assert_same_file(load_theta0(path), theta0)


def test_what_cannot_be_written_or_read_is_named(theta0, tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        load_theta0(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="none"):
        save_theta0(tmp_path / "none" / "a.safetensors", theta0)


LONG = "x" * 200_000
DESCRIPTIONS = {
    "text": LONG,
    "nested": "[" * 200_000,
    "digest": {"digest": LONG},
    "parameters": {"parameters": [[LONG, LONG]]},
    "a number": {"parameters": [["n_features", "9" * 400], ["hidden_layer_sizes", "(3,)"]]},
    "a field": {LONG: 1},
}


@pytest.mark.parametrize("kind", [*DESCRIPTIONS, "an array's name", "keys", "arrays"])
def test_a_crafted_file_is_refused_soon_and_in_few_words(kind, theta0, path):
    arrays, texts = dict(theta0.arrays), {"sklearn_mmdinit.module": theta0.architecture.to_json()}
    if kind == "an array's name":
        arrays = {LONG: np.zeros(1)}
    elif kind == "arrays":
        arrays = {str(i): np.zeros(0) for i in range(40_000)}
    elif kind == "keys":
        texts = {str(i): "" for i in range(20_000)}
    else:
        given = DESCRIPTIONS[kind]
        described = json.loads(texts["sklearn_mmdinit.module"])
        text = given if isinstance(given, str) else json.dumps(described | given)
        texts["sklearn_mmdinit.module"] = text
    save_file(arrays, path, texts)
    with pytest.raises(ValueError, match=r"\.safetensors") as caught:
        load_theta0(path)
    assert len(str(caught.value)) < 1000


# into a module


def test_a_module_of_its_kind_starts_there(of_module, path):
    save_theta0(path, of_module)
    module = Conv(2, 3, batch_norm=True).eval()
    theta0 = load_theta0(path, module)
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), theta0.arrays[name], err_msg=name)
    assert not module.training
    save_theta0(path, perceptron(batch_norm=True))
    with pytest.raises(ValueError, match="activation='relu', not 'tanh'"):
        load_theta0(path, MLP(3, (5, 4), 2, batch_norm=True, activation="tanh"))
    module = MLP(3, (5, 4), 2, batch_norm=True)
    theta0 = load_theta0(path, module)
    np.testing.assert_array_equal(module.linears[0].weight.detach(), theta0.coefs[0].T)


class Other(Conv):
    """Another class with the same arrays."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Other(2, 3, batch_norm=True), r"Conv, but the module here is \S*\.Other"),
        (lambda: Conv(2, 4, batch_norm=True), r"'conv.bias' has shape \(3,\)"),
        (lambda: Conv(2, 3), "'norm.bias' has shape .* it is not there"),
    ],
)
def test_another_one_is_refused_by_name_and_unchanged(make, words, of_module, path):
    save_theta0(path, of_module)
    module = seeded(make)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        load_theta0(path, module)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


# files of an early development version, before perceptrons were modules like any other


ROWS = torch.tensor([[0.5, -1.0, 2.0], [-0.25, 0.75, 0.0]])


def test_a_perceptron_in_an_old_file():
    theta0 = load_theta0(DATA / "perceptron_0_1.safetensors")
    assert theta0.architecture == Architecture.of_perceptron(3, (4, 3), 2, "tanh", True)
    assert theta0.gain == ()
    first = [0.654799222946167, 0.034705329686403275, -0.7932795882225037, -0.6706588864326477]
    np.testing.assert_array_equal(theta0.coefs[0][0], np.float32(first))
    assert theta0.arrays["norms.1.running_var"].shape == (3,)
    logits = theta0.to_module().eval()(ROWS).detach()
    expected = [[-0.66817731, -0.72220087], [0.46297348, 0.62220055]]
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_a_module_in_an_old_file():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    theta0 = load_theta0(DATA / "sequential_0_1.safetensors", module)
    architecture = theta0.architecture
    assert architecture.module == "torch.nn.modules.container.Sequential"
    assert (architecture.last_layer, architecture.chain) == ("2", ("0", "2"))
    assert theta0.gain == (2.0,)
    bias = [-1.1035006046295166, -0.7640786170959473, -0.47520875930786133, 0.04203600436449051]
    np.testing.assert_array_equal(theta0.arrays["0.bias"], np.float32(bias))
    expected = [[-0.09093244, 0.07039359], [-0.11774859, 0.04209347]]
    np.testing.assert_allclose(module(ROWS).detach(), expected, rtol=1e-5)


def test_a_write_to_arrays_is_refused(theta0):
    with pytest.raises(ValueError, match="read-only"):
        theta0.arrays["linears.0.bias"][0] = 1.0
