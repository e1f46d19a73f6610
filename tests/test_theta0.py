"""Theta0: what it is, the arrays that carry it, its files, and the scale of rows that it knows."""

import io
import os
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from helpers import seeded
from nets import Conv, assert_same_arrays, digit_images
from sklearn_mmdinit import MLP, MLPClassifier, MMDInitializer, NetClassifier, Theta0
from sklearn_mmdinit.theta0 import set_theta0_, theta0_in


def perceptron(sizes=(5, 4), activation="relu", n_features=3, n_classes=2):
    """A theta0 of random arrays."""
    module, rng = MLP(n_features, sizes, n_classes, activation), np.random.default_rng(0)
    init = MMDInitializer(sizes, n_classes=n_classes, activation=activation, max_iter=0)
    architecture = init.fit(rng.normal(size=(4, n_features))).theta0_.architecture
    arrays = {name: rng.uniform(-1, 1, p.shape) for name, p in module.named_parameters()}
    return Theta0(architecture, arrays)


PERCEPTRON = perceptron()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "theta0.safetensors"


@pytest.fixture(scope="module")
def of_module():
    """An initializer of a module of this project's tests."""
    params = {"n_perturbations": 4, "batch_size": 16, "max_iter": 1, "random_state": 0}
    init = MMDInitializer(module=Conv, module__width=3, module__batch_norm=True, **params)
    return init.fit(digit_images(48)[0])


def test_all_of_the_state_of_a_module_is_there(of_module):
    theta0, module = of_module.theta0_, of_module.to_module()
    assert theta0.arrays.keys() == module.state_dict().keys()
    assert int(theta0.arrays["norm.num_batches_tracked"]) > 0
    assert all(type(array) is np.ndarray for array in theta0.arrays.values())
    assert theta0.architecture.keywords == {"width": 3, "batch_norm": True}
    for ask in (lambda: theta0.coefs, lambda: of_module.coefs_):
        with pytest.raises(AttributeError, match=r"not of an MLP .*Conv"):
            ask()
    with pytest.raises(AttributeError, match=r"load its arrays into a module"):
        theta0.to_module()


@pytest.mark.parametrize("protocol", [*range(pickle.HIGHEST_PROTOCOL + 1), "torch.save"])
def test_a_fitted_initializer_is_saved_by_any_protocol(protocol, of_module):
    def copied(value):
        if protocol != "torch.save":
            return pickle.loads(pickle.dumps(value, protocol))
        torch.save(value, buffer := io.BytesIO())
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    images, labels = digit_images(48)
    clf = NetClassifier(warm_start_from=of_module, max_iter=0).fit(images, labels % 2)
    for value in (PERCEPTRON, of_module, clf):
        before, after = (theta0_in(v) for v in (value, copied(value)))
        assert_same_arrays(after, before)
        assert not any(array.flags.writeable for array in after.arrays.values())


def test_round_trip_is_exact(of_module, path):
    turned = {name: np.asfortranarray(array) for name, array in PERCEPTRON.arrays.items()}
    for own in (
        PERCEPTRON,
        Theta0(PERCEPTRON.architecture, turned),
        perceptron(activation="tanh"),
        perceptron(n_features=np.int64(3), n_classes=np.int64(2)),
        of_module.theta0_,
    ):
        own.save(str(path))
        loaded = Theta0.load(path)
        assert loaded.architecture == own.architecture
        assert_same_arrays(loaded, own)
        for name, array in own.arrays.items():
            kept = loaded.arrays[name]
            assert (kept.dtype, kept.shape) == (array.dtype, array.shape)


def test_a_file_is_replaced_whole_or_not_at_all(path, monkeypatch):
    PERCEPTRON.save(path)
    before = path.read_bytes()

    def fail(*args):
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        perceptron().save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name], "nothing half-written is left"


def test_a_damaged_file_is_named(path):
    PERCEPTRON.save(path)
    data, n = path.read_bytes(), len(path.read_bytes())
    for damaged in (b"", b"text", data[: n // 2], data[:-9] + b"x" + data[-8:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"theta0\.safetensors' is damaged"):
            Theta0.load(path)


class Other(Conv):
    """Another class with the same arrays."""


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Conv(2, 3, batch_norm=True), None),
        (lambda: Other(2, 3), r"Conv, but the module here is \S*\.Other"),
        (lambda: Conv(2, 4), r"size mismatch for conv.weight: .*\[3, "),
        (lambda: Conv(2, 3), 'Unexpected key.*"norm.weight"'),
        (lambda: MLP(3, (5, 4), 2), None),
        (
            lambda: MLP(3, (5, 4), 2, activation="tanh"),
            "MLP, .* activation='relu', but the module here is .*'tanh'",
        ),
    ],
)
def test_a_module_of_its_kind_starts_there_and_another_is_refused(make, words, of_module):
    module = seeded(make).eval()
    theta0 = PERCEPTRON if isinstance(module, MLP) else of_module.theta0_
    if words is not None:
        with pytest.raises((ValueError, RuntimeError), match=f"(?s){words}"):
            set_theta0_(module, theta0)
        return
    set_theta0_(module, theta0)
    expected = {name: torch.tensor(array) for name, array in theta0.arrays.items()}
    torch.testing.assert_close(dict(module.state_dict()), expected, rtol=0, atol=0)
    assert not module.training


def test_a_file_is_a_state_dict_for_pytorch(of_module, path):
    of_module.theta0_.save(path)
    module = Conv(width=3, batch_norm=True)
    module.load_state_dict(load_file(path))
    torch.testing.assert_close(module.state_dict(), of_module.to_module().state_dict())


# The scale of rows

PIXELS, y = load_digits().data / 16, load_digits().target
STANDARDISED = StandardScaler().fit_transform(PIXELS)
FEW = np.random.default_rng(0).permutation(len(y))[:50]


def initializer(n_classes=10):
    params = {"n_classes": n_classes, "max_iter": 0, "n_perturbations": 4, "random_state": 0}
    return MMDInitializer((8,), **params)


def fit(theta0, X):
    clf = MLPClassifier(warm_start_from=theta0, max_iter=0, random_state=0)
    return clf.fit(X, y[FEW])


@pytest.mark.parametrize("both", [(PIXELS, STANDARDISED), (STANDARDISED, PIXELS)])
def test_two_scales_have_a_warning_and_one_has_none(both):
    for learned in both:
        init = initializer().fit(learned)
        for used in both:
            for call in (
                lambda init=init, used=used: fit(init, used[FEW]),
                lambda init=init, used=used: fit(init.theta0_, csr_array(used[FEW])),
                lambda init=init, used=used: init.transform(used[FEW]),
            ):
                if used is learned:
                    call()  # warnings are errors
                    continue
                with pytest.warns(UserWarning, match=r"another scale .* preprocessing once"):
                    call()
        with pytest.warns(UserWarning, match="another scale"):
            init.set_params(warm_start=True).fit(both[learned is both[0]])


def test_the_scale_is_that_of_all_rows_and_goes_where_theta0_goes(path):
    theta0 = initializer().fit(PIXELS).theta0_
    np.testing.assert_allclose(theta0.row_mean, PIXELS.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(theta0.row_spread, PIXELS.std(axis=0), atol=1e-6)
    theta0.save(path)
    for kept in (Theta0.load(path), pickle.loads(pickle.dumps(theta0))):
        np.testing.assert_array_equal(kept.row_mean, theta0.row_mean)
        np.testing.assert_array_equal(kept.row_spread, theta0.row_spread)
    assert Theta0.load(path).arrays.keys() == theta0.arrays.keys()
    replace(theta0, row_mean=None, row_spread=None).save(path)
    assert Theta0.load(path).row_mean is None
    assert_same_arrays(Theta0.load(path), theta0)
    fit(path, 100 * STANDARDISED[FEW] / 16)


def test_the_scale_of_many_rows_is_exact_far_from_0_and_0_for_a_constant():
    rows = np.random.default_rng(0).normal(5.0, 0.1, size=(3000, 400))  # more than a block
    rows[:, 0], rows[0, 1] = 0.1, 100.0
    theta0 = initializer(n_classes=2).fit(rows).theta0_
    np.testing.assert_allclose(theta0.row_mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(theta0.row_spread[1:], rows.std(axis=0)[1:], rtol=1e-5)
    assert theta0.row_spread[0] == 0.0


def columns(law, n, rng):
    """Rows of a law: few or many columns, which may be rare, sparse or heavy-tailed."""
    if law == "one normal":
        return rng.normal(size=(n, 1))
    if law == "log-normal":
        return np.exp(rng.normal(size=(n, 12)))
    if law == "one-hot":
        return np.eye(30)[rng.choice(30, n, p=np.arange(1, 31) / 465)]
    words = (rng.random((n, 200)) < 1 / np.arange(2, 202)) * rng.random((n, 200))
    return words / np.linalg.norm(words, axis=1, keepdims=True).clip(1e-9)


@pytest.mark.parametrize("law", ["one normal", "log-normal", "one-hot", "words"])
def test_few_rows_or_columns_give_no_false_alarm(law):
    rng = np.random.default_rng(0)
    X = columns(law, 1000, rng)
    init = initializer(n_classes=2).fit(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "X is on another scale")
        for _ in range(100):
            init.transform(X[rng.choice(len(X), 10, replace=False)])
        for n in range(1, 5):
            init.transform(50 * X[:n])  # too few to tell
