"""The benchmark on binary tasks on a real ray cluster, one of whose workers is killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mnist_tasks
from engine_helpers import N_FITS, TINY, figures
from engines.threads import threads

SCRIPT = Path(__file__).parent / "ray_script.py"


def test_a_pre_training_has_the_cores_of_the_smallest_machine(monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra ray")
    from engines.ray_cluster import Ray

    cores = [(True, 8.0), (True, 3.0), (False, 2.0), (True, None)]
    nodes = [{"Alive": a, "Resources": {} if n is None else {"CPU": n}} for a, n in cores]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    engine = Ray("a:1", 0)
    assert engine._slots(whole_machine=True) == (3, 3)  # two on the first, one on the second
    assert engine._slots(whole_machine=False) == (11, 1)
    assert not engine.in_process


# One test for all the rest: a cluster takes some ten seconds to start.
def test_ray_gives_the_figures_of_loky_though_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="needs the extra ray")
    with threads(1):
        assert mnist_tasks.main([*TINY, "--jobs", "1", "--output", str(tmp_path / "loky")]) == 0
    # In a process of its own, which may leave threads and warnings behind.
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "ray"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["status"] == 0
    assert len(seen["killed"]) == 1
    assert len(seen["kept"]) == len(set(seen["kept"])) == N_FITS
    assert figures(tmp_path / "ray") == figures(tmp_path / "loky")
    # The rows, and each of three contenders, once for nine calls.
    assert seen["puts"] == ["function", "function", "function", "ndarray"]
