"""A step in a process of its own: its memory, or its seconds by another checkout of the package.

Run by itself, as ``python -m timing.probe JSON``, it prints the bytes of one step; or seconds, once
for each line that it reads.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import sklearn_mmdinit
from timing.clock import in_turns, ratio
from timing.steps import Step

BENCHMARKS = Path(__file__).resolve().parents[1]
CHECKOUT = Path(sklearn_mmdinit.__file__).resolve().parents[1]


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


def process_of(module: str, *arguments: str, checkout: Path = CHECKOUT) -> dict[str, Any]:
    """What starts a process of a module of the benchmarks, with a checkout's package."""
    path = os.pathsep.join([str(checkout), str(BENCHMARKS)])
    threads = str(torch.get_num_threads())
    return {
        # By its name, and not from the folder one stands in: the child's files are these.
        "args": [sys.executable, "-P", "-m", module, *arguments],
        "env": {**os.environ, "OMP_NUM_THREADS": threads, "PYTHONPATH": path},
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
    }


def _process(step: Step, form: str, checkout: Path = CHECKOUT) -> dict[str, Any]:
    """The same, to measure a step."""
    job = json.dumps([asdict(step), form, torch.get_num_threads()])
    return process_of("timing.probe", job, checkout=checkout)


def in_own_process(step: Step, form: str = "library") -> dict[str, Any]:
    """Peak memory of a step above what the process held before."""
    answer = subprocess.run(**_process(step, form), stderr=subprocess.PIPE, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"measuring {form} of {step} failed:\n{answer.stderr}")
    return {"peak": int(answer.stdout.splitlines()[-1])}


def compare(old: Path, steps: Mapping[str, Step], rounds: int) -> None:
    """Print seconds of each step by another checkout and by this one, round by round in turns."""
    for name, step in steps.items():
        measures = {}
        with ExitStack() as stack:
            for which, checkout in (("old", old.resolve()), ("new", CHECKOUT)):
                process: Any = stack.enter_context(
                    subprocess.Popen(**_process(step, "s", checkout))
                )
                if not Path(process.stdout.readline()).is_relative_to(checkout):
                    raise RuntimeError(f"the package is not imported from {checkout}")

                def measure(process: Any = process) -> float:
                    print(file=process.stdin, flush=True)
                    return float(process.stdout.readline())

                measures[which] = measure
            times = in_turns(measures, rounds)
        seconds = ", ".join(f"{which} {1e3 * t['median']:.1f} ms" for which, t in times.items())
        shares = ratio(times, "new", "old")
        found = f"median {shares['median']:.3f}, of the fastest {shares['of_minima']:.3f}"
        print(f"{name}: {seconds}; new / old: {found}", flush=True)


if __name__ == "__main__":
    given, form, n_threads = json.loads(sys.argv[1])
    torch.set_num_threads(n_threads)
    given["hidden_layer_sizes"] = tuple(given["hidden_layer_sizes"])
    step = Step(**given)
    if form != "s":
        print(_peak(step, form))
    else:
        measure = step.library(24)
        print(sklearn_mmdinit.__file__, flush=True)
        for _ in sys.stdin:
            print(measure(), flush=True)
