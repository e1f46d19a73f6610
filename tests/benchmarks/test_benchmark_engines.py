"""Where cells are computed: what holds without any cluster."""

import re
import sys
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend
from sklearn.base import clone

import mnist_tasks
from engine_helpers import where
from engines.choice import ENGINES, engine_of
from engines.engine import Call, work
from engines.loky import Loky
from engines.threads import threads
from protocol import pretraining
from protocol.methods import METHODS, NetworkSettings, initializer_of
from protocol.pretrained import learn
from protocol.pretraining import Pretraining, learn_all
from protocol.provenance import deciding_versions, require_versions
from sklearn_mmdinit import MMDInitializer

# Choice


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_refused_and_the_extra_named(
    backend, package, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"engines.{backend}_cluster", raising=False)
    argv = ["--dataset", "digits", "--backend", backend, "--output", str(tmp_path)]
    assert mnist_tasks.main(argv) == 2
    said = capsys.readouterr().err
    assert f"--backend {backend} needs the package {package}" in said
    assert f"pip install 'sklearn-mmdinit[{backend}]'" in said
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_backend_is_refused_by_the_parser(capsys):
    with pytest.raises(SystemExit, match="2"):
        mnist_tasks.main(["--backend", "spark"])
    said = capsys.readouterr().err
    assert all(name in said for name in ("'spark'", *ENGINES))


# Workers


def _surroundings(twice, shared):
    return 2 * twice, shared, torch.get_num_threads(), type(get_active_backend()[0]).__name__


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_call_in_a_worker_has_its_threads_and_keeps_its_own_calls_to_itself(n_threads):
    with threads(2), joblib.parallel_config(backend="threading"):
        here = work(_surroundings, n_threads, str, (3,), 4)
        assert torch.get_num_threads() == 2
    assert here == (6, "4", n_threads, "SequentialBackend")


@pytest.mark.parametrize("whole_machine", [False, True])
def test_on_one_process_calls_are_made_one_after_the_other(whole_machine):
    made = []

    def calls():
        for number in range(3):
            made.append(number)
            yield Call((number, 0.0), shared=(None,))

    with engine_of("loky", None, 1) as engine:
        for number, _ in engine.results(where, calls(), whole_machine=whole_machine):
            assert made == list(range(number + 1))
    assert len(made) == 3


def test_a_worker_with_other_versions_is_refused():
    used = deciding_versions()
    require_versions(used)
    assert "python" not in used
    with pytest.raises(RuntimeError, match=re.escape(f"has torch {used['torch']} and not 1.0")):
        require_versions(used | {"torch": "1.0"})


# Pre-trainings


@pytest.fixture
def pretrainings():
    settings = NetworkSettings((4,), epochs=2, n_perturbations=4)
    names = ("xavier/fcn/ours", "he/fcn+bn/rlabel")
    return [
        Pretraining(name, run, initializer_of(METHODS[name], settings, random_state=run))
        for run in (0, 1)
        for name in names
    ]


X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)


def _learn_all(pretrainings, folder):
    said = []
    learned = learn_all(
        pretrainings, X, 64, folder=folder, engine=Loky(1), say=said.append, quiet=True
    )
    return learned, said


def test_each_pre_training_is_found_under_its_method_and_run(pretrainings, tmp_path):
    learned, said = _learn_all(pretrainings, tmp_path)
    assert [line.partition(":")[2].split()[0] for line in said] == ["learning", "kept"] * 4
    for p in pretrainings:
        whole = clone(p.initializer).fit(X[:64])
        for name, array in whole.theta0_.arrays.items():
            found = learned[p.name, p.run].initializer.theta0_.arrays[name]
            assert np.array_equal(found, array)
    again, said = _learn_all(pretrainings, tmp_path)
    assert all(" reused " in line for line in said)
    assert {key: t.digest for key, t in again.items()} == {k: t.digest for k, t in learned.items()}
    assert len(list(tmp_path.iterdir())) == 4  # and no mark


def test_a_worker_goes_on_where_the_folder_has_a_beginning(pretrainings, tmp_path, monkeypatch):
    passes = []
    partial_fit = MMDInitializer.partial_fit

    def counted(self, X, y=None):
        if len(passes) == 1:
            passes.append("interrupted")
            raise KeyboardInterrupt
        passes.append("done")
        return partial_fit(self, X, y)

    monkeypatch.setattr(MMDInitializer, "partial_fit", counted)
    with pytest.raises(KeyboardInterrupt):
        _learn_all(pretrainings[:1], tmp_path)
    _learn_all(pretrainings[:1], tmp_path)
    assert passes == ["done", "interrupted", "done"]


def test_a_worker_without_the_folder_begins_anew_and_the_command_keeps_what_comes_back(
    pretrainings, tmp_path, monkeypatch
):
    shared, _ = _learn_all(pretrainings, tmp_path / "shared")

    @contextmanager
    def unseen(folder):
        yield "on another machine"

    monkeypatch.setattr(pretraining, "_mark", unseen)
    alone, _ = _learn_all(pretrainings, tmp_path / "alone")
    for key, theta0 in alone.items():
        assert theta0.digest == shared[key].digest
        assert theta0.path == tmp_path / "alone" / shared[key].path.name
    for p in pretrainings:
        call = {"name": p.name, "folder": tmp_path / "alone", "X_digest": joblib.hash(X[:64])}
        assert learn(p.initializer, X[:64], **call).reused
