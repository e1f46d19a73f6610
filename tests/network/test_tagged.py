"""theta0 travels with an array, and its loss is noticed."""

import copy
import pickle

import joblib
import numpy as np
import pytest

from sklearn_mmdinit import Architecture, Theta0
from sklearn_mmdinit._network import tag, tag_is_lost, theta0_of
from sklearn_mmdinit._network.tagged import Theta0Array


@pytest.fixture
def theta0():
    architecture = Architecture(n_features=3, hidden_layer_sizes=(4,), n_classes=2)
    rng = np.random.default_rng(0)
    shapes = architecture.array_shapes()
    return Theta0(architecture, {name: rng.normal(size=shapes[name]) for name in shapes})


@pytest.fixture
def X():
    return np.arange(12.0).reshape(4, 3)


def _dump_and_load(X, folder):
    joblib.dump(X, folder / "X.joblib")
    return joblib.load(folder / "X.joblib")


def _memory(X, folder):
    cached = joblib.Memory(folder, verbose=0).cache(lambda: X)
    cached()
    return cached()


COPIES = {
    "pickle": lambda X, _: pickle.loads(pickle.dumps(X)),
    "pickle 5": lambda X, _: pickle.loads(pickle.dumps(X, protocol=5)),
    "copy": lambda X, _: copy.copy(X),
    "deepcopy": lambda X, _: copy.deepcopy(X),
    "joblib.dump": _dump_and_load,
    "joblib.Memory": _memory,
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_whole_copies_keep_theta0(make, X, theta0, tmp_path):
    copied = make(tag(X, theta0), tmp_path)
    assert type(copied) is Theta0Array
    np.testing.assert_array_equal(copied, X)
    found = theta0_of(copied)
    assert found.architecture == theta0.architecture
    for name, array in theta0.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


DERIVED = {
    "slice": lambda X: X[:2],
    "rows by index": lambda X: X[[0, 2]],
    "mask": lambda X: X[X[:, 0] > 1],
    "columns": lambda X: X[:, [0, 1]],
    "sum": lambda X: X + 1,
    "ufunc": np.exp,
    "transpose": lambda X: X.T,
    "astype": lambda X: X.astype(np.float32),
    "stack with a plain array": lambda X: np.hstack([np.ones((4, 1)), X]),
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED)
def test_a_derived_array_has_lost_theta0_and_says_so(derive, X, theta0):
    tagged = tag(X, theta0)
    derived = derive(tagged)
    assert theta0_of(derived) is None
    assert tag_is_lost(derived)
    assert theta0_of(tagged) is theta0, "the array it came from keeps its own"


def test_a_tag_shares_memory_and_leaves_the_array_alone(X, theta0):
    tagged = tag(X, theta0)
    assert np.shares_memory(tagged, X)
    assert type(X) is np.ndarray
    assert theta0_of(X) is None
    assert not tag_is_lost(X)
    assert not tag_is_lost(tagged)


def test_a_copy_can_be_written_to_without_a_trace_on_the_original(X, theta0):
    for copied in (copy.copy(tag(X, theta0)), copy.deepcopy(tag(X, theta0))):
        copied[0, 0] = -1
        assert X[0, 0] == 0


def test_a_reduction_to_a_number_is_a_number(X, theta0):
    total = tag(X, theta0).sum()
    assert isinstance(total, np.float64)
    assert total == 66


@pytest.mark.parametrize("X", [[[1.0]], "text", None])
def test_other_objects_carry_nothing(X):
    assert theta0_of(X) is None
    assert not tag_is_lost(X)
