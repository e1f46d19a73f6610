"""Backends give loky's figures to the last digit, and lose no score where workers die."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend
from sklearn.base import clone

import mnist_tasks
from nets import assert_same_arrays
from protocol import backends
from protocol.backends import connected, identity, local_workers, run_call, threads
from protocol.methods import NetworkSettings, initializer_of
from protocol.store import Log, deciding_versions, require_versions
from protocol.theta0s import learn_all
from results_stand_in import status_of, written

TINY = [
    *("--dataset", "digits", "--hidden-layer-sizes", "8", "--tasks", "3"),
    *("--epochs", "1", "--n-perturbations", "4", "--n-labels", "5", "10"),
    *("--methods", "xavier/fcn/ours", "*/fcn/scratch", "--quiet"),
]
N_FITS = 3 * 3 * 2


def _run(output, *more):
    with threads(1):  # a pre-training's; another number may round otherwise
        return status_of(mnist_tasks, [*TINY, "--output", output, *more])


def _figures(output):
    """Every score, and what stands for every theta0 byte for byte."""
    results = written(output)
    return results["scores"], [theta0["digest"] for theta0 in results["theta0"]]


@pytest.fixture(autouse=True)
def no_picture(monkeypatch):
    monkeypatch.setattr(mnist_tasks, "draw_accuracy", lambda *args, **kwargs: "")


@pytest.fixture(scope="module")
def on_loky(tmp_path_factory):
    output = tmp_path_factory.mktemp("loky")
    assert _run(output, "--jobs", "1") == 0
    return _figures(output)


@pytest.fixture
def after_two_scores(monkeypatch):
    """Have something happen when two scores are kept."""
    append, kept = Log.append, []

    def act(action):
        def and_then(self, record):
            append(self, record)
            kept.append(record["key"])
            if len(kept) == 2:
                action()

        monkeypatch.setattr(Log, "append", and_then)
        return kept

    return act


# Without any cluster


def test_a_missing_package_is_refused_and_the_extra_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert _run(tmp_path, "--backend", "dask") == 2
    assert "pip install 'sklearn-mmdinit[dask]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _surroundings(twice, shared):
    return 2 * twice, shared, torch.get_num_threads(), type(get_active_backend()[0]).__name__


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_call_in_a_worker_has_its_threads_and_keeps_its_own_calls_to_itself(n_threads):
    with threads(2), joblib.parallel_config(backend="threading"):
        here = run_call(_surroundings, n_threads, identity, (3,), 4)
        assert torch.get_num_threads() == 2
    assert here == (6, 4, n_threads, "SequentialBackend")


def _where(number, seconds, parcel):
    """A call that says which process it ran in, long enough for others to take some too."""
    time.sleep(seconds)
    return number, os.getpid()


def test_a_worker_with_other_versions_is_refused():
    used = deciding_versions()
    require_versions(used)
    assert "python" not in used
    with pytest.raises(RuntimeError, match=re.escape(f"has torch {used['torch']} and not 1.0")):
        require_versions(used | {"torch": "1.0"})


def test_each_pre_training_is_found_under_its_method_and_run(tmp_path):
    X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    settings = NetworkSettings((4,), epochs=2, n_perturbations=4)
    initializers = {
        (name, run): initializer_of(name, settings, random_state=run)
        for run in (0, 1)
        for name in ("xavier/fcn/ours", "he/fcn+bn/rlabel")
    }
    options = argparse.Namespace(output=tmp_path, quiet=True)
    learned, again = (learn_all(initializers, X, 64, local_workers(1), options) for _ in range(2))
    for key, initializer in initializers.items():
        whole = clone(initializer).fit(X[:64])
        assert_same_arrays(learned[key].initializer.theta0_, whole.theta0_)
        assert again[key].seconds == learned[key].seconds  # it is read, not learned
    assert len(list((tmp_path / "theta0").iterdir())) == 4


# Dask: real clusters, whose workers and scheduler may die


class Parcel:
    """Unpickled in a process it writes that process's number into a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __reduce__(self):
        return _arrived, (str(self.folder),)

    def arrivals(self):
        """How often it was unpickled, by the number of the process."""
        return {int(p.stem): len(p.read_text().splitlines()) for p in self.folder.iterdir()}


def _arrived(folder):
    with (Path(folder) / f"{os.getpid()}.txt").open("a") as file:
        file.write("here\n")
    return Parcel(folder)


def _failing(number):
    raise ZeroDivisionError(f"cell {number}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A scheduler and two workers, each a process of its own."""
    folder = tmp_path_factory.mktemp("dask")
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    log = (folder / "log.txt").open("w")

    def start(what, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
        command += ["--scheduler-file", str(file), "--no-dashboard"]
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)

    # Without nannies: a worker that is killed stays away.
    processes = [
        start("scheduler", "--host", "127.0.0.1", "--port", "0"),
        *(start("worker", "--nthreads", "1", "--no-nanny") for _ in range(2)),
    ]
    try:
        while not file.exists():
            assert processes[0].poll() is None, (folder / "log.txt").read_text()
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2)
        yield SimpleNamespace(address=address, scheduler=processes[0], workers=processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def _in_this_process(**settings):
    """A cluster that needs no time to start; its worker is a thread."""
    from distributed import LocalCluster

    own = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1"}
    return LocalCluster(1, **own, dashboard_address="127.0.0.1:0", **settings)


def _on(address):
    return connected(argparse.Namespace(backend="dask", address=address, jobs=-1))


@pytest.mark.long
def test_what_is_shared_is_sent_to_each_worker_once(cluster, tmp_path):
    parcel = Parcel(tmp_path)
    calls = [((number, 0.02), (parcel,)) for number in range(60)]
    with _on(cluster.address) as workers:
        taken = dict(workers.results(_where, calls[:3], whole_machine=True))
        # One machine: its first worker makes one call after the other.
        assert len(set(taken.values())) == 1
        taken = dict(workers.results(_where, calls))
        assert sorted(taken) == list(range(60))
    assert parcel.arrivals() == dict.fromkeys(taken.values(), 1)


def test_an_error_of_a_cell_is_raised_as_it_is():
    pytest.importorskip("distributed", reason="needs the extra dask")
    with (
        _in_this_process(threads_per_worker=1) as cluster,
        _on(cluster.scheduler_address) as workers,
        pytest.raises(ZeroDivisionError, match="cell"),
    ):
        list(workers.results(_failing, [((0,), ())]))


def test_clusters_that_cannot_be_used_are_refused(tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed", reason="needs the extra dask")
    with _in_this_process(threads_per_worker=2) as several:
        assert _run(tmp_path, "--backend", "dask", "--address", several.scheduler_address) == 75
    assert "has 2 threads; start as many workers as there are cores" in capsys.readouterr().err
    monkeypatch.setattr(backends, "SECONDS_TO_CONNECT", 0.2)
    assert _run(tmp_path, "--backend", "dask", "--address", "tcp://127.0.0.1:9") == 75
    assert "no dask workers answer at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_killed_worker_costs_no_score(cluster, tmp_path, on_loky, after_two_scores):
    kept = after_two_scores(cluster.workers[0].kill)
    assert _run(tmp_path, "--backend", "dask", "--address", cluster.address) == 0
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert len(kept) == len(set(kept)) == N_FITS
    assert _figures(tmp_path) == on_loky


# The last test on these processes, as it ends them.
def test_a_lost_scheduler_ends_the_command_which_then_goes_on(
    cluster, tmp_path, on_loky, after_two_scores, capsys
):
    kept = after_two_scores(cluster.scheduler.kill)
    backend = ("--backend", "dask", "--address", cluster.address)
    assert _run(tmp_path, *backend) == 75
    stderr = capsys.readouterr().err
    assert "the dask cluster is lost" in stderr
    assert "the same command goes on from here" in stderr
    assert 2 <= len(kept) < N_FITS
    # A new scheduler at the old address, with a worker that is a thread of this process.
    port = int(cluster.address.rpartition(":")[2])
    with _in_this_process(threads_per_worker=1, scheduler_port=port):
        assert _run(tmp_path, *backend) == 0
    assert len(kept) == len(set(kept)) == N_FITS
    assert _figures(tmp_path) == on_loky
