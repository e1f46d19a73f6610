"""Engines give loky's figures to the last digit, and lose no score where workers or heads die."""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend
from sklearn.base import clone

import mnist_tasks
from engines.engine import Call, Dask, Loky, engine_of, threads, work
from nets import assert_same_arrays
from protocol import theta0s
from protocol.methods import NetworkSettings, initializer_of
from protocol.store import Log, deciding_versions, require_versions
from protocol.theta0s import learn_all
from results_stand_in import written

TINY = [
    *("--dataset", "digits", "--hidden-layer-sizes", "8", "--tasks", "3"),
    *("--epochs", "1", "--n-perturbations", "4", "--n-labels", "5", "10"),
    *("--methods", "xavier/fcn/ours", "*/fcn/scratch", "--quiet"),
]
N_FITS = 3 * 3 * 2


def _run(output, *more):
    with threads(1):  # what a worker has; another number may round otherwise
        return mnist_tasks.main([*TINY, "--output", str(output), *more])


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


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_refused_and_the_extra_named(
    backend, package, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, package, None)
    assert _run(tmp_path, "--backend", backend) == 2
    assert f"pip install 'sklearn-mmdinit[{backend}]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _surroundings(twice, shared):
    return 2 * twice, shared, torch.get_num_threads(), type(get_active_backend()[0]).__name__


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_call_in_a_worker_has_its_threads_and_keeps_its_own_calls_to_itself(n_threads):
    with threads(2), joblib.parallel_config(backend="threading"):
        here = work(_surroundings, n_threads, (3,), 4)
        assert torch.get_num_threads() == 2
    assert here == (6, 4, n_threads, "SequentialBackend")


def _where(number, seconds, parcel):
    """A call that says which process it ran in, long enough for others to take some too."""
    time.sleep(seconds)
    return number, os.getpid()


@pytest.mark.parametrize("whole_machine", [False, True])
def test_on_one_process_calls_are_made_one_after_the_other(whole_machine):
    made = []

    def calls():
        for number in range(3):
            made.append(number)
            yield Call((number, 0.0), shared=(None,))

    with engine_of("loky", None, 1) as engine:
        for number, _ in engine.results(_where, calls(), whole_machine=whole_machine):
            assert made == list(range(number + 1))
    assert len(made) == 3


def test_a_worker_with_other_versions_is_refused():
    used = deciding_versions()
    require_versions(used)
    assert "python" not in used
    with pytest.raises(RuntimeError, match=re.escape(f"has torch {used['torch']} and not 1.0")):
        require_versions(used | {"torch": "1.0"})


# Pre-trainings

X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)


def _learn_all(initializers, output):
    options = argparse.Namespace(output=output, quiet=True)
    return learn_all(initializers, X, 64, Loky(None, 1), options)


def test_each_pre_training_is_found_under_its_method_and_run(tmp_path, monkeypatch):
    settings = NetworkSettings((4,), epochs=2, n_perturbations=4)
    initializers = {
        (name, run): initializer_of(name, settings, random_state=run)
        for run in (0, 1)
        for name in ("xavier/fcn/ours", "he/fcn+bn/rlabel")
    }
    learned = _learn_all(initializers, tmp_path)
    for key, initializer in initializers.items():
        whole = clone(initializer).fit(X[:64])
        assert_same_arrays(learned[key].initializer.theta0_, whole.theta0_)
    monkeypatch.setattr(theta0s, "_fitted", None)
    again = _learn_all(initializers, tmp_path)
    assert {key: t.digest for key, t in again.items()} == {k: t.digest for k, t in learned.items()}
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


def _failing(number, parcel):
    raise ZeroDivisionError(f"cell {number}")


@contextlib.contextmanager
def _processes(folder, n_workers):
    """A scheduler and some workers, each a process of its own."""
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
        *(start("worker", "--nthreads", "1", "--no-nanny") for _ in range(n_workers)),
    ]
    try:
        while not file.exists():
            assert processes[0].poll() is None, (folder / "log.txt").read_text()
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(n_workers)
        yield SimpleNamespace(address=address, scheduler=processes[0], workers=processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with _processes(tmp_path_factory.mktemp("dask"), 2) as processes:
        yield processes


def _in_this_process(**settings):
    """A cluster that needs no time to start; its worker is a thread."""
    import distributed

    return distributed.LocalCluster(
        1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        **settings,
    )


@pytest.mark.long
def test_what_is_shared_does_not_reach_a_worker_with_every_call(cluster, tmp_path):
    parcel = Parcel(tmp_path)
    calls = [Call((number, 0.02), shared=(parcel,)) for number in range(60)]
    with Dask(cluster.address, 0) as engine:
        taken = dict(engine.results(_where, calls[:3], whole_machine=True))
        # One machine: its first worker makes one call after the other.
        assert len(set(taken.values())) == 1
        taken = dict(engine.results(_where, calls))
        assert sorted(taken) == list(range(60))
    assert set(taken.values()) == set(parcel.arrivals())
    # Dask takes away copies that nothing waits for, and may send for one again.
    assert sum(parcel.arrivals().values()) < 20


def test_an_error_of_a_cell_is_raised_as_it_is(cluster, tmp_path):
    with Dask(cluster.address, 0) as engine, pytest.raises(ZeroDivisionError, match="cell"):
        list(engine.results(_failing, [Call((0,), shared=(Parcel(tmp_path),))]))


def test_a_pre_training_has_one_worker_of_each_machine_and_the_cores_of_the_smallest():
    pytest.importorskip("distributed", reason="needs the extra dask")
    engine = Dask("tcp://a:1", 0)
    workers = {"tcp://b:1": 1, "tcp://b:2": 1, "tcp://b:3": 1, "tcp://c:7": 1, "tcp://c:5": 1}
    engine.client = SimpleNamespace(nthreads=lambda: workers)
    n_threads, where_to = engine._placement(whole_machine=True)
    assert n_threads == 2
    assert where_to["workers"] == ["tcp://b:1", "tcp://c:5"]
    assert engine._placement(whole_machine=False) == (1, {})


def test_clusters_that_cannot_be_used_are_refused(tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed", reason="needs the extra dask")
    with _in_this_process(threads_per_worker=2) as several:
        assert _run(tmp_path, "--backend", "dask", "--address", several.scheduler_address) == 75
    assert "has 2 threads; start as many workers as there are cores" in capsys.readouterr().err
    monkeypatch.setattr("engines.engine.SECONDS_TO_CONNECT", 0.2)
    assert _run(tmp_path, "--backend", "dask", "--address", "tcp://127.0.0.1:9") == 75
    assert "no dask workers answer at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_killed_worker_costs_no_score(cluster, tmp_path, on_loky, after_two_scores):
    kept = after_two_scores(cluster.workers[0].kill)
    assert _run(tmp_path, "--backend", "dask", "--address", cluster.address) == 0
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert len(kept) == len(set(kept)) == N_FITS
    assert _figures(tmp_path) == on_loky


def test_a_lost_scheduler_ends_the_command_which_then_goes_on(
    cluster, tmp_path, on_loky, after_two_scores, capsys
):
    kept = after_two_scores(cluster.scheduler.kill)
    backend = ("--backend", "dask", "--address", cluster.address)
    assert _run(tmp_path, *backend) == 75
    said = capsys.readouterr().err
    assert "the dask cluster is lost" in said
    assert "the same command goes on from here" in said
    assert 2 <= len(kept) < N_FITS
    # A new scheduler at the old address, with a worker that is a thread of this process.
    port = int(cluster.address.rpartition(":")[2])
    with _in_this_process(threads_per_worker=1, scheduler_port=port):
        assert _run(tmp_path, *backend) == 0
    assert len(kept) == len(set(kept)) == N_FITS
    assert _figures(tmp_path) == on_loky


def test_a_scheduler_lost_a_moment_ago_hides_no_error():
    comm = pytest.importorskip("distributed.comm", reason="needs the extra dask")
    engine = Dask("tcp://a:1", 0)
    # Where the client has not heard of it yet.
    engine.managed, engine.client = True, Mock(status="running")
    engine.client.amm.start.side_effect = comm.CommClosedError
    engine.__exit__()
    engine.client.close.assert_called_once_with()


# Ray

# In a process of its own, which may leave threads and warnings behind; a worker is killed on the
# way, and it prints what it saw.
RAY_SCRIPT = """
import json, sys, psutil, mnist_tasks
from protocol.store import Log
from test_benchmark_engines import _run
append, kept = Log.append, []

def workers():
    family = psutil.Process().children(recursive=True)
    return [process for process in family if process.name() in ("ray::IDLE", "ray::work")]

def append_and_kill(self, record):
    append(self, record)
    kept.append(record["key"])
    if len(kept) == 2:
        workers()[0].kill()

Log.append = append_and_kill
mnist_tasks.draw_accuracy = lambda *args, **kwargs: ""
from pathlib import Path
status = _run(Path(sys.argv[1]), "--backend", "ray", "--jobs", "2")
print(json.dumps({"status": status, "kept": kept}))
"""


def test_ray_gives_the_figures_of_loky_though_a_worker_is_killed(tmp_path, on_loky):
    pytest.importorskip("ray", reason="needs the extra ray")
    done = subprocess.run(
        [sys.executable, "-c", RAY_SCRIPT, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["status"] == 0
    assert len(seen["kept"]) == len(set(seen["kept"])) == N_FITS
    assert _figures(tmp_path) == on_loky
