"""What the benchmark keeps on disk: results, and the theta0 it learned."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from data.datasets import load_digits_dataset, standardize
from protocol import pretrained
from protocol import pretrained as kept
from protocol.methods import METHODS, NetworkSettings, initializer_of
from protocol.pretrained import data_digest, fit_key, learn
from protocol.store import ScoreLog, digest_of, write_atomically, write_json
from sklearn_mmdinit import Coherence, RandomAffine

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


def _coherent(passes, **params):
    settings = NetworkSettings((4,), coherent_epochs=passes)
    method = METHODS["xavier/fcn/ours+coherence"]
    return initializer_of(method, settings, random_state=0).set_params(**params)


def test_an_initializer_may_decide_how_many_passes_there_are(tmp_path, unlabelled):
    # 2,500 steps in passes of one: the batch of 256 walks is larger than the rows.
    initializer = _coherent(None, coherence=Coherence(batch_size=2), batch_size=2)
    whole = clone(initializer).fit(unlabelled)
    call = {"name": "x", "folder": tmp_path, "X_digest": data_digest(unlabelled)}
    learned = learn(initializer, unlabelled, **call)
    assert learned.initializer.n_iter_ == whole.auto_params_["max_iter"] > 1
    for key, array in whole.theta0_.arrays.items():
        assert np.array_equal(learned.initializer.theta0_.arrays[key], array)
    record = json.loads(json.dumps(learned.record()))
    assert record["auto"]["max_iter"] == record["passes"]
    assert len(record["gain"]) == 1
    assert learn(initializer, unlabelled, **call).reused


def test_passes_are_written_down_now_and_then_and_at_the_end(tmp_path, unlabelled, monkeypatch):
    written = []
    monkeypatch.setattr(pretrained, "_write", lambda path, state: written.append(path))
    call = {"name": "x", "X_digest": data_digest(unlabelled)}
    learn(_tiny(epochs=5), unlabelled, folder=tmp_path / "rarely", **call)
    assert len(written) == 1
    monkeypatch.setattr(pretrained, "SECONDS_BETWEEN_WRITES", 0.0)
    learn(_tiny(epochs=5), unlabelled, folder=tmp_path / "always", **call)
    assert len(written) == 1 + 5


def test_what_auto_stands_for_is_a_part_of_the_key(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(32, 4))
    fitted = {n: _coherent(1, output="hidden").set_params(max_iter=n).fit(rows) for n in (1, 2)}
    for first in fitted.values():
        first.set_params(max_iter=1)  # what is left to tell them apart was learned
    given = {
        "auto": _coherent(1),
        "the same": _coherent(1, verbose=1),
        "passes": _coherent(2),
        "default": _coherent(1, coherence=Coherence()),
        "other": _coherent(1, coherence=Coherence(separation=3.0)),
        "memory": _coherent(1, coherence=Coherence(memory="a folder", n_jobs=2)),
        "augmented": _coherent(1, coherence=Coherence(augmentation=RandomAffine())),
        "augmented more": _coherent(1, coherence=Coherence(augmentation=RandomAffine(shift=3.0))),
        "two rounds": _coherent(1, coherence=Coherence(embedding=_coherent(1))),
        "a longer first": _coherent(1, coherence=Coherence(embedding=_coherent(2))),
        **{
            f"frozen after {n}": _coherent(1, coherence=Coherence(embedding=FrozenEstimator(first)))
            for n, first in fitted.items()
        },
        "none": _coherent(1, coherence=None),
    }
    keys = {name: fit_key(initializer, "x") for name, initializer in given.items()}
    assert keys.pop("the same") == keys["auto"]
    loud = Coherence(embedding=_coherent(1, verbose=1))
    assert fit_key(_coherent(1, coherence=loud), "x") == keys["two rounds"]
    assert keys.pop("memory") == keys["default"]
    assert len(set(keys.values())) == len(keys)
    # A default that moves makes another theta0, though no parameter was changed.
    monkeypatch.setattr(Coherence.__init__, "__kwdefaults__", dict(
        Coherence.__init__.__kwdefaults__, separation=5.0
    ))  # fmt: skip
    assert fit_key(_coherent(1), "x") != keys["auto"]
    assert fit_key(_coherent(1, coherence=None), "x") == keys["none"]


def test_a_file_of_another_form_is_not_found(monkeypatch):
    key = fit_key(_coherent(1), "x")
    assert fit_key(_coherent(1), "x") == key
    monkeypatch.setattr(kept, "FORM", kept.FORM + 1)
    assert fit_key(_coherent(1), "x") != key


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
