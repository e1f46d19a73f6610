"""A step or a whole fit in a process of its own: memory, or seconds by another checkout.

Run by itself, as ``python -m timing.probe JSON``, it prints the bytes of one step; the seconds and
bytes of a fit; or seconds of a step or a fit, once for each line that it reads.
"""

import json
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import zoom
from sklearn.datasets import load_digits, make_classification
from sklearn.preprocessing import StandardScaler

import sklearn_mmdinit
from sklearn_mmdinit import Coherence, MMDInitializer, OrientedGradients, RandomAffine
from timing.clock import in_turns, ratio, timed
from timing.steps import Step

BENCHMARKS = Path(__file__).resolve().parents[1]
CHECKOUT = Path(sklearn_mmdinit.__file__).resolve().parents[1]

# Rows and columns of whole fits: tables, MNIST's images, and as many rows as make the search of
# neighbours another one.
SIZES = ((2_000, 50), (20_000, 50), (60_000, 784), (1_000_000, 50))
N_FACTORS = 10
# Share by which L_coh at the end of fits that are compared may differ.
APART = 0.05


@dataclass(frozen=True)
class Fit:
    """A whole fit with coherence, of rows that have clusters.

    Without ``n_rows`` they are scikit-learn's digits; ``images`` are these digits enlarged to 28 x
    28 pixels, with noise, and get HOG features and augmentation.
    """

    hidden_layer_sizes: tuple[int, ...]
    n_classes: int
    n_rows: int = 0
    n_columns: int = 0
    images: bool = False

    def rows(self) -> np.ndarray:
        X = load_digits().data
        if self.images:
            rng = np.random.default_rng(0)
            large = zoom(X.reshape(-1, 8, 8), (1, 3.5, 3.5), order=1).reshape(len(X), -1)
            X = large[rng.integers(len(X), size=self.n_rows)]
            X = X + rng.normal(size=X.shape)
        elif self.n_rows:
            of_classes = {"n_classes": self.n_classes, "n_informative": 10, "random_state": 0}
            X, _ = make_classification(self.n_rows, self.n_columns, **of_classes)
            X = StandardScaler().fit_transform(X)
        return ((X - X.mean()) / X.std()).astype(np.float32)

    def initializer(self) -> MMDInitializer:
        coherence: Any = "auto"
        if self.images:
            coherence = Coherence(embedding=OrientedGradients(), augmentation=RandomAffine())
        return MMDInitializer(
            self.hidden_layer_sizes, n_classes=self.n_classes, coherence=coherence, random_state=0
        )


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
    before, _ = _memory()
    action()
    return max(_memory()[1] - before, 0)


def _peak(step: Step, form: str) -> int:
    """Peak memory of two steps; on a GPU of as many as are recorded."""
    if form != "library":
        return grown_by(lambda: step.textbook(form)(), step.device)
    rows = step.rows((2 if step.device == "cpu" else 20) * step.batch_size)
    replace(step, n_perturbations=2).initializer(max_iter=1).fit(rows)  # code of the first call
    return grown_by(lambda: step.initializer(max_iter=1).fit(rows), step.device)


def _fit(n_rows: int, n_columns: int, device: str) -> tuple[float, int]:
    """Seconds and peak memory of a fit; rows are near a plane, as those of real tables are."""
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
    peak = grown_by(lambda: taken.append(timed(lambda: init.fit(X), device)), device)
    return round(taken[0], 2), peak


def _process(subject: Any, form: str, checkout: Path = CHECKOUT) -> dict[str, Any]:
    """What starts a process of this file on a step or a size, with a checkout's package."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(checkout), str(BENCHMARKS), before]))
    n_threads = torch.get_num_threads()
    job = json.dumps([subject, form, n_threads])
    return {
        # By its name, and not from the folder one stands in: the child's files are these.
        "args": [sys.executable, "-P", "-m", "timing.probe", job],
        "env": {**os.environ, "OMP_NUM_THREADS": str(n_threads), "PYTHONPATH": path},
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
    }


def _last_line(subject: Any, form: str) -> list[str]:
    """The words of the last line that such a process prints."""
    answer = subprocess.run(**_process(subject, form), stderr=subprocess.PIPE, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"measuring {form} of {subject} failed:\n{answer.stderr}")
    return answer.stdout.splitlines()[-1].split()


def measure_peak(step: Step, form: str = "library") -> dict[str, Any]:
    """Peak memory of a step above what the process held before: a GPU counts its own."""
    own_process = step.device == "cpu"
    return {"peak": int(_last_line(asdict(step), form)[0]) if own_process else _peak(step, form)}


def measure_coherent_fits(
    sizes: Sequence[tuple[int, int]] = SIZES, device: str = "cpu"
) -> list[dict[str, Any]]:
    """Seconds of fit, and by how many bytes its process grew meanwhile, for each size."""
    records = []
    for rows, columns in sizes:
        seconds, peak = _last_line([rows, columns, device], "fit")
        record = {"rows": rows, "columns": columns, "seconds": float(seconds), "peak": int(peak)}
        records.append(record)
    return records


# Beside another checkout


@contextmanager
def _both(subject: Any, form: str, other: Path) -> Iterator[dict[str, Callable[[], float]]]:
    """Processes of another checkout ("old") and of this one ("new"): each call is an answer."""
    with ExitStack() as stack:
        asks: dict[str, Callable[[], float]] = {}
        for which, checkout in (("old", other.resolve()), ("new", CHECKOUT)):
            process: Any = stack.enter_context(
                subprocess.Popen(**_process(subject, form, checkout))
            )
            if not Path(process.stdout.readline()).is_relative_to(checkout):
                raise RuntimeError(f"the package is not imported from {checkout}")

            def ask(process: Any = process) -> float:
                print(file=process.stdin, flush=True)
                return float(process.stdout.readline())

            asks[which] = ask
        yield asks


def _summary(name: str, times: Mapping[str, Any], told: str = "") -> dict[str, Any]:
    """Print a line of what was measured in turns, and return all of it."""
    seconds = ", ".join(f"{which} {t['median']:.3g} s" for which, t in times.items())
    share = ratio(times, "new", "old")
    told += f"; new / old: median {share['median']:.3f}, of the fastest {share['of_minima']:.3f}"
    print(f"{name}: {seconds}{told}", flush=True)
    return {"name": name, "seconds": dict(times), "new / old": share}


def compare_steps(other: Path, steps: Mapping[str, Step], rounds: int) -> list[dict[str, Any]]:
    """Seconds of each step by another checkout and by this one, round by round in turns."""
    records = []
    for name, step in steps.items():
        with _both(asdict(step), "seconds", other) as asks:
            records.append(_summary(name, in_turns(asks, rounds)))
    return records


def compare_fits(other: Path, fits: Mapping[str, Fit], rounds: int) -> list[dict[str, Any]]:
    """Seconds of whole fits with coherence in turns, where both end at about the same L_coh."""
    records = []
    for name, fit in fits.items():
        with _both(asdict(fit), "fits", other) as asks:
            ends = {which: ask() for which, ask in asks.items()}
            told = f"; L_coh {ends['old']:.3f} and {ends['new']:.3f}"
            if abs(ends["new"] - ends["old"]) > APART * abs(ends["old"]):
                print(f"{name}: not timed, since they learn differently{told}", flush=True)
                records.append({"name": name, "L_coh": ends})
            else:
                record = _summary(name, in_turns(asks, rounds), told)
                records.append(record | {"L_coh": ends})
    return records


def _answers(subject: dict[str, Any], form: str) -> Iterator[float]:
    """L_coh at the end of a fit, then seconds of fits; or seconds of a step, again and again."""
    subject["hidden_layer_sizes"] = tuple(subject["hidden_layer_sizes"])
    if form == "seconds":
        measure = Step(**subject).library()
        while True:
            yield measure()
    fit = Fit(**subject)
    X = fit.rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield float(fit.initializer().fit(X).history_[-1]["coherence"])
        while True:
            yield timed(lambda: fit.initializer().fit(X))


if __name__ == "__main__":
    subject, form, n_threads = json.loads(sys.argv[1])
    torch.set_num_threads(n_threads)
    if form == "fit":
        print(*_fit(*subject))
    elif form in ("seconds", "fits"):
        print(sklearn_mmdinit.__file__, flush=True)
        for _, answer in zip(sys.stdin, _answers(subject, form), strict=False):
            print(answer, flush=True)
    else:
        subject["hidden_layer_sizes"] = tuple(subject["hidden_layer_sizes"])
        print(_peak(Step(**subject), form))
