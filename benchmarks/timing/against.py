"""The same pre-training steps by two checkouts of the package, side by side.

    python benchmarks/timing/against.py --old PATH [--new PATH] [--threads 2] [--cases NAME ...]

Each checkout has a process of its own, which imports the package from there; they take turns, so
that a slow minute of the machine meets both. A step is what a longer ``fit`` takes more than a
shorter one. Only parameters that both checkouts have are used.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CASES", "compare", "main"]

BENCHMARKS = Path(__file__).resolve().parents[1]
PAPER = (392, 392, 392)


def _rows(n: int, *shape: int) -> np.ndarray:
    """Correlated rows, as pixels are: 16 directions carry most of their variance."""
    rng = np.random.default_rng(0)
    size = int(np.prod(shape))
    latent = rng.normal(size=(n, 16)) @ rng.normal(size=(16, size)) / 4
    rows = 0.9 * latent + 0.4 * rng.normal(size=(n, size))
    return rows.reshape(n, *shape).astype(np.float32)


def _sequential() -> Any:
    from torch import nn

    widths = (784, *PAPER, 2)
    layers: list[nn.Module] = []
    for n_in, n_out in zip(widths[:-1], widths[1:], strict=True):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _convnet(width: int) -> dict[str, Any]:
    from protocol.networks import ConvNet

    return {"module": ConvNet(side=28, width=width), "n_perturbations": 64}


# Name -> parameters, shape of an example, steps a pass, rows a step, passes more in the longer fit.
Case = tuple[Callable[[], dict[str, Any]], tuple[int, ...], int, int, int]
CASES: dict[str, Case] = {
    "perceptron": (
        lambda: {"hidden_layer_sizes": PAPER, "n_perturbations": 256}, (784,), 4, 32, 4,
    ),
    "perceptron, 10 classes": (
        lambda: {"hidden_layer_sizes": PAPER, "n_perturbations": 256, "n_classes": 10},
        (784,), 4, 32, 2,
    ),
    "sequential": (
        lambda: {"module": _sequential(), "n_perturbations": 256}, (784,), 4, 32, 3,
    ),
    "convnet 8": (lambda: _convnet(8), (1, 28, 28), 4, 32, 5),
    "convnet 16": (lambda: _convnet(16), (1, 28, 28), 4, 32, 3),
    "convnet 32": (lambda: _convnet(32), (1, 28, 28), 4, 32, 2),
    "coherent": (
        lambda: {"hidden_layer_sizes": PAPER, "coherence": "auto"}, (784,), 8, 256, 5,
    ),
    "coherent convnet 8": (
        lambda: {**_convnet(8), "n_perturbations": 32, "coherence": "auto"},
        (1, 28, 28), 8, 256, 3,
    ),
}  # fmt: skip


def _seconds_a_step(name: str) -> float:
    from sklearn_mmdinit import MMDInitializer

    parameters, shape, steps, rows, more = CASES[name]
    X = _rows(steps * rows, *shape)

    def seconds(max_iter: int) -> float:
        initializer = MMDInitializer(
            **parameters(), batch_size=32, max_iter=max_iter, device="cpu", random_state=0
        )
        start = time.perf_counter()
        initializer.fit(X)
        return time.perf_counter() - start

    short = seconds(1)
    return (seconds(1 + more) - short) / (more * steps)


def _work(threads: int) -> None:
    """Answer each name of a case on the standard input by the seconds of its step."""
    import torch

    import sklearn_mmdinit

    torch.set_num_threads(threads)
    print(json.dumps(str(sklearn_mmdinit.__file__)), flush=True)
    for line in sys.stdin:
        print(json.dumps(_seconds_a_step(line.strip())), flush=True)


class _Worker:
    """A process that imports the package from a checkout and times steps when asked to."""

    def __init__(self, checkout: Path, threads: int) -> None:
        path = os.pathsep.join(map(str, (checkout, BENCHMARKS)))
        limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "timing.against", "--worker", "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **limits, "PYTHONPATH": path},
        )
        imported = self._answer()
        if not Path(imported).is_relative_to(checkout.resolve()):
            raise RuntimeError(f"the package came from {imported} and not from {checkout}")

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process that times steps has ended; its error stands above")
        return json.loads(line)

    def seconds_a_step(self, case: str) -> float:
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        return float(self._answer())

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def compare(
    old: Path, new: Path, cases: Sequence[str], rounds: int, threads: int
) -> dict[str, dict[str, Any]]:
    """Seconds of each case's step by both checkouts, and new / old: of medians, and of minima."""
    found = {}
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(_Worker(path.resolve(), threads))
            for name, path in (("old", old), ("new", new))
        }
        for case in cases:
            seconds: dict[str, list[float]] = {name: [] for name in workers}
            for number in range(rounds + 1):
                # Whoever goes first would always meet the same state of the machine.
                for name in sorted(workers, reverse=bool(number % 2)):
                    taken = workers[name].seconds_a_step(case)
                    if number:  # the first round warms up
                        seconds[name].append(taken)
            medians = {name: float(np.median(own)) for name, own in seconds.items()}
            found[case] = {
                "seconds": seconds,
                "medians": medians,
                "ratio": medians["new"] / medians["old"],
                "ratio of minima": min(seconds["new"]) / min(seconds["old"]),
            }
            print(
                f"{case:24} old {1e3 * medians['old']:8.1f} ms, new {1e3 * medians['new']:8.1f} ms;"
                f" new / old {found[case]['ratio']:.3f},"
                f" of the fastest {found[case]['ratio of minima']:.3f}",
                flush=True,
            )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="a checkout, e.g. a worktree of an earlier commit")
    parser.add_argument("--new", type=Path, default=BENCHMARKS.parent, help="default: this one")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        _work(options.threads)
    elif options.old is None:
        parser.error("--old: give the checkout to compare with")
    else:
        compare(options.old, options.new, options.cases, options.rounds, options.threads)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
