"""What the benchmark keeps on disk: results, and the theta0 it learned."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from data.datasets import load_digits_dataset, standardize
from protocol.methods import (
    METHODS,
    NetworkSettings,
    initializer_of,
)
from protocol.pretrained import data_digest, learn
from protocol.store import ScoreLog, digest_of, write_atomically, write_json

# Files


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": [1, 2]})

    def fail(part):
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"a": [1, 2]}
    assert list(tmp_path.iterdir()) == [path]


def test_a_log_with_a_cut_line_is_read_and_gone_on_with(tmp_path):
    log = ScoreLog(tmp_path / "deeper" / "scores.jsonl")
    assert log.read() == {}
    log.append({"key": "a", "accuracy": 0.5})
    with log.path.open("a") as file:
        file.write('{"key": "b", "accu')
    assert set(log.read()) == {"a"}
    log.append({"key": "c", "accuracy": 0.75})
    assert log.read() == {
        "a": {"key": "a", "accuracy": 0.5},
        "c": {"key": "c", "accuracy": 0.75},
    }


def test_a_digest_reads_values_and_not_their_order():
    assert digest_of({"a": 1, "b": [2, 3]}) == digest_of({"b": [2, 3], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


# Learned theta0


@pytest.fixture
def unlabelled():
    X, _ = standardize(load_digits_dataset())
    return X[:64]


def _tiny(name="xavier/fcn/ours", *, random_state=0, epochs=3):
    settings = NetworkSettings((4,), epochs=epochs, n_perturbations=4)
    return initializer_of(METHODS[name], settings, random_state=random_state)


@pytest.mark.parametrize("name", ["xavier/fcn/ours", "he/fcn+bn/rlabel"])
def test_an_interrupted_pre_training_goes_on_to_the_same_theta0(
    tmp_path, unlabelled, name, monkeypatch
):
    initializer = _tiny(name)
    whole = clone(initializer).fit(unlabelled)
    passes = []
    partial_fit = type(initializer).partial_fit

    def interrupted(self, X, y=None):
        if len(passes) == 2:
            passes.append("interrupted")
            raise KeyboardInterrupt
        passes.append("done")
        return partial_fit(self, X, y)

    monkeypatch.setattr(type(initializer), "partial_fit", interrupted)
    call = {"name": name, "folder": tmp_path, "X_digest": data_digest(unlabelled)}
    with pytest.raises(KeyboardInterrupt):
        learn(initializer, unlabelled, **call)
    resumed = learn(initializer, unlabelled, **call)
    assert passes == ["done", "done", "interrupted", "done"]
    for key, array in whole.theta0_.arrays.items():
        assert np.array_equal(resumed.initializer.theta0_.arrays[key], array)
    again = learn(initializer, unlabelled, **call)
    assert (resumed.reused, again.reused, len(passes)) == (False, True, 4)
    assert again.digest == resumed.digest
    assert len(list(tmp_path.iterdir())) == 1


def test_other_parameters_or_data_have_a_file_of_their_own(tmp_path, unlabelled):
    more = np.concatenate([unlabelled, unlabelled[:1]])
    calls = [
        (_tiny(epochs=1), unlabelled),
        (_tiny(epochs=1, random_state=1), unlabelled),
        (_tiny(epochs=2), unlabelled),
        (_tiny(epochs=1), more),
        (_tiny("he/fcn/ours", epochs=1), unlabelled),
    ]
    learned = [
        learn(initializer, X, name="x", folder=tmp_path, X_digest=data_digest(X))
        for initializer, X in calls
    ]
    assert len({theta0.path for theta0 in learned}) == len(calls)
    loud = _tiny(epochs=1).set_params(verbose=1)
    assert learn(
        loud, unlabelled, name="x", folder=tmp_path, X_digest=data_digest(unlabelled)
    ).reused


def test_a_damaged_file_is_named(tmp_path, unlabelled):
    call = {"name": "x", "folder": tmp_path, "X_digest": data_digest(unlabelled)}
    path = learn(_tiny(epochs=1), unlabelled, **call).path
    path.write_bytes(b"not a pickle")
    with pytest.raises(RuntimeError, match=rf"{path.name} cannot be read.*delete it"):
        learn(_tiny(epochs=1), unlabelled, **call)
