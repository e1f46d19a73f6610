"""theta0 in a file: what goes in comes out, and damage is reported."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sklearn_mmdinit import Architecture, Theta0
from sklearn_mmdinit._network import load_theta0, save_theta0


def make_theta0(batch_norm=False, activation="tanh"):
    architecture = Architecture(3, (5, 4), 2, activation, batch_norm)
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.uniform(size=shape).astype(np.float32)
        for name, shape in architecture.array_shapes().items()
    }
    return Theta0(architecture, arrays)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "theta0.safetensors"


@pytest.mark.parametrize("batch_norm", [False, True])
def test_round_trip_is_exact(batch_norm, path):
    theta0 = make_theta0(batch_norm)
    save_theta0(path, theta0)
    loaded = load_theta0(str(path))
    assert loaded.architecture == theta0.architecture
    assert loaded.arrays.keys() == theta0.arrays.keys()
    for name, array in theta0.arrays.items():
        assert loaded.arrays[name].dtype == np.float32
        np.testing.assert_array_equal(loaded.arrays[name], array)


def test_a_gain_is_part_of_the_file(path):
    theta0 = make_theta0(activation="relu")
    save_theta0(path, Theta0(theta0.architecture, theta0.arrays, (2.0, 3.5)))
    assert load_theta0(path).gain == (2.0, 3.5)
    save_theta0(path, theta0)
    assert load_theta0(path).gain == ()


def test_memory_order_does_not_matter(path):
    theta0 = make_theta0()
    arrays = {name: np.asfortranarray(array) for name, array in theta0.arrays.items()}
    save_theta0(path, Theta0(theta0.architecture, arrays))
    for name, array in load_theta0(path).arrays.items():
        np.testing.assert_array_equal(array, theta0.arrays[name])


def test_a_fitted_estimator_can_be_saved(path):
    theta0 = make_theta0()
    save_theta0(path, SimpleNamespace(theta0_=theta0))
    assert load_theta0(path).architecture == theta0.architecture


def test_saving_what_has_no_theta0_is_an_error(path):
    with pytest.raises(TypeError, match=r"fitted estimator with theta0_.*SimpleNamespace"):
        save_theta0(path, SimpleNamespace())
    assert not path.exists()


def test_a_file_is_replaced_whole_or_not_at_all(path, monkeypatch):
    save_theta0(path, make_theta0())
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_theta0(path, make_theta0(batch_norm=True))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name], "nothing half-written is left"


def test_others_may_read_the_file_as_the_umask_says(path):
    plain = path.with_name("plain")
    plain.touch()
    save_theta0(path, make_theta0())
    assert path.stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize("name", ["theta0", "theta0.npz"])
def test_another_suffix_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=rf"'\.safetensors', got .*{name}"):
        save_theta0(tmp_path / name, make_theta0())
    with pytest.raises(ValueError, match=r"'\.safetensors'"):
        load_theta0(tmp_path / name)


def test_a_folder_is_refused(path):
    path.mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        load_theta0(path)


def test_missing_file(path):
    with pytest.raises(FileNotFoundError, match=r"no file of theta0 at .*theta0\.safetensors"):
        load_theta0(path)


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_cut_file(keep, path):
    save_theta0(path, make_theta0())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        load_theta0(path)


def test_file_of_another_kind(path):
    path.write_text("not at all\n" * 50)
    with pytest.raises(ValueError, match="damaged or not a safetensors file"):
        load_theta0(path)


def test_missing_metadata(path):
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="does not say which network"):
        load_theta0(path)


def _rewrite(path, arrays=None, text=None):
    theta0 = make_theta0()
    text = theta0.architecture.to_json() if text is None else text
    save_theta0(path, theta0)
    arrays = load_file(path) if arrays is None else arrays
    save_file(arrays, path, metadata={"sklearn_mmdinit.architecture": text})


def test_metadata_that_is_no_architecture(path):
    _rewrite(path, text='{"n_features": 3}')
    with pytest.raises(ValueError, match="not the description of an architecture"):
        load_theta0(path)


def test_arrays_of_another_network(path):
    _rewrite(path, text=Architecture(3, (5, 5), 2).to_json())
    with pytest.raises(ValueError, match=r"has shape \(4, 5\), expected \(5, 5\)"):
        load_theta0(path)


def test_arrays_that_are_not_finite(path):
    arrays = dict(make_theta0().arrays)
    arrays["linears.0.bias"] = np.full(5, np.nan, np.float32)
    _rewrite(path, arrays=arrays)
    with pytest.raises(ValueError, match=r"'linears.0.bias' holds NaN or infinity"):
        load_theta0(path)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder '.*none' to write 'a.safetensors' to"):
        save_theta0(tmp_path / "none" / "a.safetensors", make_theta0())


@pytest.mark.parametrize("kind", [list, lambda rows: np.array(rows, dtype=np.int64)])
def test_arrays_are_kept_in_float32(kind, path):
    arrays = {"linears.0.weight": kind([[1, 2], [3, 4]]), "linears.0.bias": kind([0, 1])}
    theta0 = Theta0(Architecture(2, (), 2), arrays)
    assert {array.dtype for array in theta0.arrays.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(theta0.coefs[0], [[1, 3], [2, 4]])
    save_theta0(path, theta0)
    np.testing.assert_array_equal(load_theta0(path).coefs[0], theta0.coefs[0])


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (1e300, "array 'linears.0.bias' holds NaN or infinity"),
        ("a", "array 'linears.0.bias' must hold numbers, got dtype <U1"),
        (1j, "must hold numbers, got dtype complex128"),
    ],
)
def test_what_float32_does_not_hold_is_no_theta0(value, match):
    arrays = {"linears.0.weight": np.eye(2), "linears.0.bias": np.array([value, value])}
    with pytest.raises(ValueError, match=match):
        Theta0(Architecture(2, (), 2), arrays)


def test_an_activation_that_there_is_not_is_named():
    with pytest.raises(ValueError, match=r"unknown activation='swish'; .*'gelu', 'relu', 'tanh'"):
        Architecture(2, (3,), 2, activation="swish")
