"""The benchmark on binary tasks on real dask clusters: workers and the scheduler may die."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import mnist_tasks
from engine_helpers import N_FITS, TINY, Parcel, Unreadable, failing, figures, where
from engines.engine import Call, EngineLostError
from engines.threads import threads
from protocol import evaluation
from protocol.store import ScoreLog

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
from engines import dask_cluster  # noqa: E402
from engines.dask_cluster import Dask  # noqa: E402


def _run(output, *more):
    with threads(1):  # what a worker has; another number may round otherwise
        return mnist_tasks.main([*TINY, "--output", str(output), *more])


@pytest.fixture(autouse=True, scope="module")
def no_picture():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mnist_tasks, "draw_accuracy", lambda *args, **kwargs: "")
        yield


@pytest.fixture(scope="module")
def on_loky(tmp_path_factory):
    output = tmp_path_factory.mktemp("loky")
    assert _run(output, "--jobs", "1") == 0
    return figures(output)


@dataclass
class Cluster:
    """Processes of a real cluster."""

    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dask")
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
        yield Cluster(address, processes[0], processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()
        log.close()


def _in_this_process(**settings):
    """A cluster that needs no time to start; its worker is a thread."""
    return distributed.LocalCluster(
        1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        **settings,
    )


@pytest.fixture
def after_two_scores(monkeypatch):
    """Have something happen when two scores are kept."""
    append = ScoreLog.append
    kept = []

    def act(action):
        def and_then(self, record):
            append(self, record)
            kept.append(record["key"])
            if len(kept) == 2:
                action()

        monkeypatch.setattr(ScoreLog, "append", and_then)
        return kept

    return act


def test_a_cluster_of_the_command_s_own_gives_the_figures_of_loky(tmp_path, on_loky):
    assert _run(tmp_path, "--backend", "dask", "--jobs", "2") == 0
    assert figures(tmp_path) == on_loky
    results = json.loads((tmp_path / "digits_tasks.json").read_text())
    where_from = {"version": distributed.__version__, "machines": 1, "workers": 2}
    assert results["backend"] == {"name": "dask"} | where_from


def test_what_is_shared_reaches_each_worker_once_however_many_calls(cluster, tmp_path):
    parcel = Parcel(tmp_path)
    calls = [Call((number, 0.02), shared=(parcel,)) for number in range(60)]
    with Dask(cluster.address, 0) as engine:
        taken = dict(engine.results(where, calls[:3], whole_machine=True))
        # One machine: its first worker makes one call after the other.
        assert len(set(taken.values())) == 1
        taken = dict(engine.results(where, calls))
        assert sorted(taken) == list(range(60))
    assert parcel.arrivals() == {worker.pid: 1 for worker in cluster.workers}
    assert set(taken.values()) == set(parcel.arrivals())


def test_an_error_of_a_cell_is_raised_as_it_is(cluster, tmp_path):
    calls = [Call((number,), shared=(Parcel(tmp_path),)) for number in range(2)]
    with Dask(cluster.address, 0) as engine, pytest.raises(ZeroDivisionError, match="cell"):
        list(engine.results(failing, calls))


def test_a_call_that_no_worker_can_read_is_answered(cluster):
    calls = [Call((number, Unreadable(), None)) for number in range(2)]
    with (
        Dask(cluster.address, 0) as engine,
        pytest.raises(EngineLostError, match="No module named 'nowhere'"),
    ):
        list(engine.results(where, calls))


def test_a_pre_training_has_one_worker_of_each_machine_and_the_cores_of_the_smallest():
    engine = Dask("tcp://a:1", 0)
    workers = {"tcp://b:1": 1, "tcp://b:2": 1, "tcp://b:3": 1, "tcp://c:7": 1, "tcp://c:5": 1}
    engine.client = SimpleNamespace(nthreads=lambda: workers)
    n_threads, under_way, where_to = engine._placement(whole_machine=True)
    assert (n_threads, under_way) == (2, 2)
    assert where_to["workers"] == ["tcp://b:1", "tcp://c:5"]
    assert engine._placement(whole_machine=False) == (1, "2 * n_jobs", {})


def test_workers_with_several_threads_are_refused(tmp_path, capsys):
    with _in_this_process(threads_per_worker=2) as several:
        backend = ("--backend", "dask", "--address", several.scheduler_address)
        assert _run(tmp_path, *backend) == 2
    said = capsys.readouterr().err
    assert "has 2 threads; start as many workers as there are cores, with one thread each" in said
    assert not list(tmp_path.iterdir())


def test_an_address_where_nobody_answers_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dask_cluster, "SECONDS_TO_CONNECT", 0.2)
    assert _run(tmp_path, "--backend", "dask", "--address", "tcp://127.0.0.1:9") == 2
    assert "no dask scheduler answers at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_killed_worker_costs_no_score(cluster, tmp_path, on_loky, after_two_scores):
    kept = after_two_scores(cluster.workers[0].kill)
    assert _run(tmp_path, "--backend", "dask", "--address", cluster.address) == 0
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert len(kept) == len(set(kept)) == N_FITS
    assert figures(tmp_path) == on_loky


def test_a_lost_scheduler_ends_the_command_which_then_goes_on(
    cluster, tmp_path, on_loky, after_two_scores, monkeypatch, capsys
):
    kept = after_two_scores(cluster.scheduler.kill)
    backend = ("--backend", "dask", "--address", cluster.address)
    assert _run(tmp_path, *backend) == 75
    said = capsys.readouterr().err
    assert "the dask cluster is lost" in said
    assert "the same command goes on from here" in said
    before = len(kept)
    assert 2 <= before < N_FITS
    fits = []
    cross_val_score = evaluation.cross_val_score

    def counted(*args, cv, **kwargs):
        fits.append(len(cv))
        return cross_val_score(*args, cv=cv, **kwargs)

    monkeypatch.setattr(evaluation, "cross_val_score", counted)
    # A new scheduler at the old address, with a worker that is a thread of this process.
    port = int(cluster.address.rpartition(":")[2])
    with _in_this_process(threads_per_worker=1, scheduler_port=port):
        assert _run(tmp_path, *backend) == 0
    assert sum(fits) == N_FITS - before
    assert len(kept) == len(set(kept)) == N_FITS
    assert figures(tmp_path) == on_loky
