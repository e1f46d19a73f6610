"""Seconds and memory of a step in a process of its own, which may import another checkout.

Run by itself, as ``python -m timing.probe JSON``, it measures one step and prints JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import sklearn_mmdinit
from timing.clock import in_turns, ratio
from timing.steps import Step

__all__ = ["compare", "grown_by", "in_own_process"]

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


def _probe(step: Step, form: str, n_steps: int) -> dict[str, Any]:
    """Peak memory of two steps, and seconds of one if `n_steps` of the library are timed."""
    found: dict[str, Any] = {"package": sklearn_mmdinit.__file__}
    if form != "library":
        return found | {"peak": grown_by(lambda: step.textbook(form)())}
    if n_steps:
        return found | {"seconds": step.library(n_steps)()}
    rows = step.rows(2 * step.batch_size)
    replace(step, n_perturbations=2).initializer(max_iter=1).fit(rows)  # code of the first call
    return found | {"peak": grown_by(lambda: step.initializer(max_iter=1).fit(rows))}


def in_own_process(
    step: Step, form: str = "library", n_steps: int = 0, checkout: Path | None = None
) -> dict[str, Any]:
    """Seconds a step, or peak memory above what the process held, with a checkout's package."""
    threads = torch.get_num_threads()
    job = json.dumps([asdict(step), form, n_steps, threads])
    path = [str(checkout or Path(sklearn_mmdinit.__file__).parents[1]), str(BENCHMARKS)]
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
    found = json.loads(answer.stdout.splitlines()[-1])
    package = Path(found.pop("package"))
    if not package.is_relative_to(Path(path[0]).resolve()):
        raise RuntimeError(f"the package is imported from {package} and not from {path[0]}")
    return found


def compare(old: Path, steps: Mapping[str, Step], rounds: int) -> None:
    """Print seconds of each step by another checkout and by this one, in turns, and new / old."""
    print(f"old is {old}, new is {Path(sklearn_mmdinit.__file__).parents[1]}")
    for name, step in steps.items():

        def measure(checkout: Path | None, step: Step = step) -> float:
            return in_own_process(step, n_steps=24, checkout=checkout)["seconds"]

        times = in_turns({"old": lambda: measure(old), "new": lambda: measure(None)}, rounds)
        medians = ", ".join(f"{which} {1e3 * own['median']:.1f} ms" for which, own in times.items())
        shares = ratio(times, "new", "old")
        found = f"{shares['median']:.3f}, of the fastest {shares['of_minima']:.3f}"
        print(f"{name}: {medians}; new / old {found}", flush=True)


if __name__ == "__main__":
    given, form, n_steps, n_threads = json.loads(sys.argv[1])
    torch.set_num_threads(n_threads)
    given["hidden_layer_sizes"] = tuple(given["hidden_layer_sizes"])
    print(json.dumps(_probe(Step(**given), form, n_steps)))
