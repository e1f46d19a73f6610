"""What is kept on disk: logs and theta0; and going on after an interruption."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from sklearn.base import clone

import sklearn_mmdinit
from data.datasets import load_digits_dataset, standardize
from nets import assert_same_arrays
from protocol import store, theta0s
from protocol.methods import FEATURES_THETA0, NetworkSettings, initializer_of
from protocol.store import data_digest
from protocol.theta0s import fit_key, learn, path_of
from sklearn_mmdinit import Coherence, RandomAffine
from test_checkpoint import at_most, interrupted_at

# Learned theta0

X = standardize(load_digits_dataset())[0][:64]


def _tiny(name="xavier/fcn/ours", *, random_state=0, epochs=3):
    settings = NetworkSettings((4,), epochs=epochs, n_perturbations=4)
    return initializer_of(name, settings, random_state=random_state)


def _path(initializer, folder):
    return path_of(initializer, "a/b", folder, data_digest(X))


def _learn(initializer, folder):
    return learn(_path(initializer, folder), initializer, X)


def test_an_interrupted_pre_training_goes_on_to_the_same_theta0(tmp_path, monkeypatch):
    monkeypatch.setattr("sklearn_mmdinit.training.config.Config.window", 2)
    initializer = _tiny("he/fcn+bn/ours")
    whole = clone(initializer).fit(X)
    n_steps = whole.history_[-1]["step"]
    with pytest.raises(KeyboardInterrupt), interrupted_at(n_steps // 2 + 1):
        _learn(initializer, tmp_path)
    with at_most(n_steps // 2 + 1):  # of whole windows
        resumed = _learn(initializer, tmp_path)
    assert_same_arrays(resumed.initializer.theta0_, whole.theta0_)
    assert resumed.initializer.get_params() == whole.get_params()
    with at_most(0):
        again = _learn(clone(initializer).set_params(verbose=1), tmp_path)
    assert again.digest == resumed.digest
    assert (again.seconds, resumed.seconds) == (None, None), "no time of a part"
    assert _learn(initializer, tmp_path / "whole").seconds > 0.0
    assert [path.name[:4] for path in tmp_path.glob("*.*")] == ["a-b-"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    def fill(text, path):
        path.write_text(text)
        if text == "half":
            raise KeyboardInterrupt

    path, before = tmp_path / "new" / "a.json", []
    for text in ("half", "one", "half", "two"):
        with suppress(KeyboardInterrupt):
            store.write_atomically(path, partial(fill, text))
            before = [text]
        assert [file.read_text() for file in path.parent.iterdir()] == before


def test_each_pre_training_is_found_under_its_method_and_run(tmp_path):
    for seed in (0, 1):
        for name in ("xavier/fcn/ours", "he/fcn+bn/rlabel"):
            initializer = _tiny(name, random_state=seed).set_params(verbose=0)  # as commands do
            learned, again = (_learn(clone(initializer), tmp_path) for _ in range(2))
            assert_same_arrays(learned.initializer.theta0_, clone(initializer).fit(X).theta0_)
            assert again.seconds == learned.seconds  # it is read, not learned
    assert len(list(tmp_path.iterdir())) == 4


def _coherent(passes, **params):
    settings = NetworkSettings((4,), coherent_epochs=passes)
    return initializer_of(FEATURES_THETA0, settings).set_params(**params)


def test_a_changed_setting_or_other_data_change_the_key(monkeypatch):
    given = {
        "paper": _tiny(),
        "seed": _tiny(random_state=1),
        "passes": _tiny(epochs=2),
        "auto": _coherent(1),
        "default": _coherent(1, coherence=Coherence()),
        "other": _coherent(1, coherence=Coherence(separation=3.0)),
        "augmented": _coherent(1, coherence=Coherence(augmentation=RandomAffine())),
        "augmented more": _coherent(1, coherence=Coherence(augmentation=RandomAffine(shift=3.0))),
        "learned before": _coherent(1, coherence=Coherence(embedding=_coherent(1))),
        "a longer first": _coherent(1, coherence=Coherence(embedding=_coherent(2))),
    }
    keys = {name: fit_key(initializer, "x") for name, initializer in given.items()}
    keys["data"] = fit_key(_tiny(), "y")
    assert len(set(keys.values())) == len(keys)
    # What changes nothing in the result.
    assert fit_key(_coherent(1, verbose=1), "x") == keys["auto"]
    loud = Coherence(embedding=_coherent(1, verbose=1))
    assert fit_key(_coherent(1, coherence=loud), "x") == keys["learned before"]
    monkeypatch.setattr(theta0s, "FORM", theta0s.FORM + 1)
    assert fit_key(_tiny(), "x") != keys["paper"]


def test_a_theta0_is_known_by_the_code_that_learned_it_and_says_its_commit(tmp_path, monkeypatch):
    package, own = Path(sklearn_mmdinit.__file__).parent, tmp_path / "package"
    shutil.copytree(package, own, ignore=shutil.ignore_patterns("__pycache__"))
    digest_now = store.code_digest.__wrapped__  # what is kept is of the files as they were
    assert digest_now(own) == store.code_digest(package)
    path = own / "losses" / "_degenerate.py"
    text = path.read_text()
    path.write_text(text.replace('"""', '"""Otherwise said. ', 1) + "\n# and a comment\n")
    assert digest_now(own) == store.code_digest(package)
    path.write_text(text + "\nFACTOR = 2.0\n")
    assert digest_now(own) != store.code_digest(package)
    monkeypatch.setattr(theta0s, "commit", lambda: "first")
    learned = _learn(_tiny(epochs=1), tmp_path)
    monkeypatch.setattr(theta0s, "commit", lambda: "later")
    assert _learn(_tiny(epochs=1), tmp_path).record()["commit"] == "first"
    monkeypatch.setattr(theta0s, "code_digest", lambda: "other code")
    assert _learn(_tiny(epochs=1), tmp_path).record()["commit"] == "later"
    assert learned.record()["commit"] == "first"


def test_a_damaged_file_is_named(tmp_path):
    path = _path(_tiny(epochs=1), tmp_path)
    path.write_bytes(b"not a pickle")
    with pytest.raises(RuntimeError, match=rf"{path.name} cannot be read.*delete it"):
        _learn(_tiny(epochs=1), tmp_path)
