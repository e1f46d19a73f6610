"""A step or a whole fit in a process of its own: its memory, or its seconds by another checkout.

Run by itself, as ``python -m timing.probe JSON``, it prints where its package is, and for each line
that it reads one more measurement.
"""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sklearn_mmdinit
from sklearn_mmdinit import MMDInitializer
from timing.clock import in_turns, ratio, timed
from timing.steps import Step

BENCHMARKS = Path(__file__).resolve().parents[1]
CHECKOUT = Path(sklearn_mmdinit.__file__).resolve().parents[1]

N_FACTORS = 10  # of the rows of a whole fit
# Share by which L_coh at the end of fits that are compared may differ.
APART = 0.05


# In the process


def _memory(field: str) -> int:
    """Bytes of this process by Linux's record of it: VmRSS now, VmHWM at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def grown_by(action: Callable[[], Any], device: str = "cpu") -> int:
    """By how many bytes this process, or its share of a GPU, grows at most while an action runs."""
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved()  # what a recorded step keeps is not allocated
        action()
        return torch.cuda.max_memory_reserved() - before
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget a peak from before
    before = _memory("VmRSS")
    action()
    return max(_memory("VmHWM") - before, 0)


def _peak(step: Step, form: str) -> int:
    """Peak memory of two steps; on a GPU of as many as are recorded."""
    if form != "library":
        return grown_by(lambda: step.textbook(form)(), step.device)
    rows = step.rows((2 if step.device == "cpu" else 20) * step.batch_size)
    replace(step, n_perturbations=2).initializer(max_iter=1).fit(rows)  # code of the first call
    return grown_by(lambda: step.initializer(max_iter=1).fit(rows), step.device)


def _fits(n_rows: int, n_columns: int, device: str) -> Iterator[dict[str, float]]:
    """Whole fits with coherence; rows are near a plane, as those of real tables are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, N_FACTORS), np.float32) @ rng.standard_normal(
        (N_FACTORS, n_columns), np.float32
    )
    X += rng.standard_normal(X.shape, np.float32)
    X /= X.std()
    hidden = (392, 392, 392) if n_columns == 784 else (256, 256)  # the paper's for images
    init = MMDInitializer(hidden, coherence="auto", device=device, random_state=0)
    torch.zeros(1, device=device)  # a GPU is taken before the first second counts
    taken: list[float] = []
    while True:
        peak = grown_by(lambda: taken.append(timed(lambda: init.fit(X), device)), device)
        yield {"seconds": taken[-1], "peak": peak, "L_coh": init.history_[-1]["coherence"]}


def _answers(kind: str, subject: dict[str, Any]) -> Iterator[Any]:
    """Measurements of a step or of a fit, without an end."""
    if kind == "fit":
        yield from _fits(**subject)
    form = subject.pop("form", "library")
    step = Step(**subject | {"hidden_layer_sizes": tuple(subject["hidden_layer_sizes"])})
    measure = step.library() if kind == "seconds" else lambda: _peak(step, form)
    while True:
        yield measure()


# Outside


@contextmanager
def _asking(kind: str, checkout: Path = CHECKOUT, **subject: Any) -> Iterator[Callable[[], Any]]:
    """A process of this file with a checkout's package; each call is one more measurement."""
    path = filter(None, [str(checkout), str(BENCHMARKS), os.environ.get("PYTHONPATH")])
    n_threads = torch.get_num_threads()
    process: Any = subprocess.Popen(
        # By its name, and not from the folder one stands in: the child's files are these.
        [sys.executable, "-P", "-m", "timing.probe", json.dumps([kind, subject, n_threads])],
        env=os.environ | {"OMP_NUM_THREADS": str(n_threads), "PYTHONPATH": os.pathsep.join(path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        if not Path(process.stdout.readline()).is_relative_to(checkout):
            raise RuntimeError(f"the package is not imported from {checkout}")

        def ask() -> Any:
            print(file=process.stdin, flush=True)
            return json.loads(process.stdout.readline())

        yield ask


def measure_peak(step: Step, form: str = "library") -> dict[str, Any]:
    """Peak memory of a step above what the process held before: a GPU counts its own."""
    if step.device != "cpu":
        return {"form": form, "peak": _peak(step, form)}
    with _asking("peak", **asdict(step), form=form) as ask:
        return {"form": form, "peak": ask()}


def measure_fits(sizes: Sequence[tuple[int, int]], device: str = "cpu") -> list[dict[str, Any]]:
    """Seconds of a fit, and by how many bytes its process grew meanwhile, for each size."""
    records = []
    for rows, columns in sizes:
        with _asking("fit", n_rows=rows, n_columns=columns, device=device) as ask:
            fit = ask()
        record = {"rows": rows, "columns": columns, "seconds": round(fit["seconds"], 2)}
        records.append(record | {"peak": fit["peak"]})
    return records


# Beside another checkout


@contextmanager
def _both(kind: str, other: Path, **subject: Any) -> Iterator[dict[str, Callable[[], Any]]]:
    """Processes of another checkout ("old") and of this one ("new")."""
    with ExitStack() as stack:
        checkouts = {"old": other.resolve(), "new": CHECKOUT}
        yield {
            name: stack.enter_context(_asking(kind, checkout, **subject))
            for name, checkout in checkouts.items()
        }


def _summary(name: str, times: Mapping[str, Any]) -> dict[str, Any]:
    """Print a line of what was measured in turns, and return all of it."""
    seconds = ", ".join(f"{which} {t['median']:.3g} s" for which, t in times.items())
    share = ratio(times, "new", "old")
    told = f"new / old: median {share['median']:.3f}, of the fastest {share['of_minima']:.3f}"
    print(f"{name}: {seconds}; {told}", flush=True)
    return {"name": name, "seconds": dict(times), "new / old": share}


def compare_steps(other: Path, steps: Mapping[str, Step], rounds: int) -> list[dict[str, Any]]:
    """Seconds of each step by another checkout and by this one, round by round in turns."""
    records = []
    for name, step in steps.items():
        with _both("seconds", other, **asdict(step)) as asks:
            records.append(_summary(name, in_turns(asks, rounds)))
    return records


def compare_fits(
    other: Path, sizes: Sequence[tuple[int, int]], rounds: int
) -> list[dict[str, Any]]:
    """Seconds of whole fits with coherence in turns, where both end at about the same L_coh."""
    records = []
    for rows, columns in sizes:
        name = f"{rows:,} x {columns}"
        with _both("fit", other, n_rows=rows, n_columns=columns, device="cpu") as asks:
            ends = {which: ask()["L_coh"] for which, ask in asks.items()}
            record: dict[str, Any] = {"name": name}
            if abs(ends["new"] - ends["old"]) > APART * abs(ends["old"]):
                print(f"{name}: not timed, since they learn differently, L_coh {ends}", flush=True)
            else:
                timers = {which: lambda ask=ask: ask()["seconds"] for which, ask in asks.items()}
                record = _summary(name, in_turns(timers, rounds))
            records.append(record | {"L_coh": ends})
    return records


if __name__ == "__main__":
    kind, subject, n_threads = json.loads(sys.argv[1])
    torch.set_num_threads(n_threads)
    warnings.simplefilter("ignore")
    print(sklearn_mmdinit.__file__, flush=True)
    for _, answer in zip(sys.stdin, _answers(kind, subject), strict=False):
        print(json.dumps(answer), flush=True)
