"""Memory of a step in a process of its own.

Run by itself, as ``python -m timing.probe JSON``, it measures one step and prints the bytes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import sklearn_mmdinit
from timing.steps import Step

BENCHMARKS = Path(__file__).resolve().parents[1]


def _memory() -> tuple[int, int]:
    """Bytes of this process now, and the most so far; where only the latter is known, twice that.

    ``ru_maxrss`` of a child counts what its parent used before the child's program began, so
    Linux's own record of this program is read where there is one.
    """
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return 1024 * int(fields["VmRSS"].split()[0]), 1024 * int(fields["VmHWM"].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return (unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,) * 2


def grown_by(action: Callable[[], Any]) -> int:
    """By how many bytes this process grows at most while an action runs."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget a peak from before
    before, _ = _memory()
    action()
    return max(_memory()[1] - before, 0)


def _peak(step: Step, form: str) -> int:
    """Peak memory of two steps."""
    if form != "library":
        return grown_by(lambda: step.textbook(form)())
    rows = step.rows(2 * step.batch_size)
    replace(step, n_perturbations=2).initializer(max_iter=1).fit(rows)  # code of the first call
    return grown_by(lambda: step.initializer(max_iter=1).fit(rows))


def in_own_process(step: Step, form: str = "library") -> dict[str, Any]:
    """Peak memory of a step above what the process held before."""
    threads = torch.get_num_threads()
    job = json.dumps([asdict(step), form, threads])
    path = [str(Path(sklearn_mmdinit.__file__).parents[1]), str(BENCHMARKS)]
    answer = subprocess.run(
        # By its name, and not from the folder one stands in: the child's files are these.
        [sys.executable, "-P", "-m", "timing.probe", job],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(path)},
    )
    if answer.returncode != 0:
        raise RuntimeError(f"measuring {job} failed:\n{answer.stderr}")
    return {"peak": int(answer.stdout.splitlines()[-1])}


if __name__ == "__main__":
    given, form, n_threads = json.loads(sys.argv[1])
    torch.set_num_threads(n_threads)
    given["hidden_layer_sizes"] = tuple(given["hidden_layer_sizes"])
    print(_peak(Step(**given), form))
