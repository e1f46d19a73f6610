"""Claim: pre-training takes little more than its matrix products, fine-tuning no more than sklearn.

First it checks that all that is compared computes the same thing, and stops where it does not.
Then it measures, all in one run on one machine and what is compared in turns:

- ``step``: seconds a pre-training step, as the paper writes it (a copy of every weight for each
  network; the same by ``torch.func.vmap``), by ``MMDInitializer``, and the floor, which is the
  step's dense matrix products at the rate of this machine's own sgemm;
- ``breakdown``: where a step's time goes, and the peak memory of each form;
- ``scaling``: time and memory against K, B, width, depth, d, and the rows of an array on disk;
- ``fine-tuning``: ``MLPClassifier.fit`` against scikit-learn's, and ``cross_val_score`` with one
  and two jobs;
- ``modules``: the same perceptron as an ``nn.Sequential`` in ``module=`` beside the perceptron's
  own path, ConvNets' steps beside their dense products, and the memory against K.

Run it (about ten minutes on two cores, or about one with ``--quick``, whose figures are rough and
whose steps have a quarter of the paper's perturbed networks)::

    python benchmarks/speed.py
    python benchmarks/speed.py --quick
    python benchmarks/speed.py --sections step breakdown

It prints the tables and writes them to ``speed.json`` in the output folder. Leave the machine
alone meanwhile: another program that uses its cores shows in every figure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from protocol.provenance import provenance

from protocol.store import write_json
from reporting.results import machine_line
from reporting.tables import text_of
from timing.agreement import (
    DisagreementError,
    check_gradient_law,
    check_law,
    check_same_noise,
    random_rows,
)
from timing.fine_tuning import check_training, measure_cross_validation, measure_fits
from timing.library_step import step_parts
from timing.module_step import (
    ConvSize,
    check_module_law,
    check_module_same_noise,
    measure_modules,
)
from timing.scaling import (
    measure_memory,
    measure_module_memory,
    measure_rows,
    measure_scaling,
)
from timing.step_forms import Size, initializer, measure_steps

__all__ = ["main"]

HERE = Path(__file__).resolve().parent

PAPER = Size()
QUICK = Size(n_perturbations=64)
# The narrow one of ``mnist_tasks.py --network convnet``, to that of PyTorch's example of MNIST.
CONVNETS = [ConvSize(width=width) for width in (8, 16, 32)]
QUICK_CONVNETS = [ConvSize(n_perturbations=16)]


def _step(size: Size, quick: bool, device: str) -> dict[str, Any]:
    # Many steps: what a call costs besides them cancels, but the noise of it does not.
    n_steps, rounds = (3, 2) if quick else (40, 5)
    return {"step": measure_steps(size, n_steps, rounds, device)}


def _breakdown(size: Size, quick: bool, device: str) -> dict[str, Any]:
    n_steps = 3 if quick else 10
    rows = random_rows(n_steps * size.batch_size, size.n_features)
    estimator = initializer(size).partial_fit(rows)
    forms = ["library", "direct"] if quick else ["library", "direct", "vmap"]
    return {
        "breakdown": step_parts(lambda: estimator.partial_fit(rows), n_steps),
        "memory": measure_memory(forms, size),
    }


def _scaling(size: Size, quick: bool, device: str) -> dict[str, Any]:
    numbers_of_rows = (10_000, 50_000) if quick else (10_000, 100_000, 1_000_000)
    return {"scaling": measure_scaling(size, quick), "rows": measure_rows(numbers_of_rows)}


def _fine_tuning(size: Size, quick: bool, device: str) -> dict[str, Any]:
    if quick:
        return {
            "fine_tuning": measure_fits((60, 240), (1,), rounds=3),
            "cross_validation": measure_cross_validation(n_folds=12, rounds=1),
        }
    return {
        "fine_tuning": measure_fits((60, 120, 240, 480), (1, 2), rounds=7),
        "cross_validation": measure_cross_validation(n_folds=40, rounds=3),
    }


def _modules(size: Size, quick: bool, device: str) -> dict[str, Any]:
    convnets = QUICK_CONVNETS if quick else CONVNETS
    n_steps, rounds = (2, 1) if quick else (10, 5)
    numbers = (16, 64) if quick else (64, 128, 256, 512)
    return {
        "modules": measure_modules(size, convnets, n_steps, rounds, device),
        "module_memory": measure_module_memory(size, convnets[0], numbers),
    }


SECTIONS: dict[str, Callable[[Size, bool, str], dict[str, Any]]] = {
    "step": _step,
    "breakdown": _breakdown,
    "scaling": _scaling,
    "fine-tuning": _fine_tuning,
    "modules": _modules,
}


def _agreement(size: Size, quick: bool, sections: Sequence[str]) -> dict[str, Any]:
    """Check what the chosen sections compare."""
    found: dict[str, Any] = {}
    n_networks, repetitions = (256, 60) if quick else (4096, 200)
    if {"step", "breakdown", "scaling"} & set(sections):
        found["same noise, two classes"] = check_same_noise()
        found["same noise, three classes"] = check_same_noise(n_classes=3)
        found["law of loss and gradient"] = check_gradient_law(repetitions)
        found["law of outputs"] = check_law(
            size.hidden_layer_sizes, size.n_features, size.batch_size, n_networks
        )
    if "modules" in sections:
        found["same noise, any module"] = check_module_same_noise()
        found["same noise, any module, three classes"] = check_module_same_noise(3)
        found["law, any module"] = check_module_law(repetitions, size, n_networks)
    if "fine-tuning" in sections:
        found["training loss"] = check_training()
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="rough figures in about a minute")
    parser.add_argument(
        "--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="NAME",
        help=f"what to measure: {', '.join(SECTIONS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--device",
        default="cpu",
        help="where the sections 'step' and 'modules' compute (default: cpu)",
    )
    parser.add_argument("--threads", type=int, help="of PyTorch (default: its own choice)")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="folder of speed.json")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    size = QUICK if options.quick else PAPER
    start = time.perf_counter()
    results: dict[str, Any] = {
        "quick": options.quick,
        "device": options.device,
        "threads": torch.get_num_threads(),
        **provenance(),
        "size": {
            "n_perturbations": size.n_perturbations,
            "batch_size": size.batch_size,
            "network": "-".join(map(str, size.widths)),
        },
    }
    print(machine_line(results))
    try:
        results["agreement"] = _agreement(size, options.quick, options.sections)
        print(f"All forms agree ({time.perf_counter() - start:.0f} s).", flush=True)
        for name in options.sections:
            found = SECTIONS[name](size, options.quick, options.device)
            results |= found
            for kind in found:
                print(f"\n{text_of(results, [kind])}", flush=True)
    except DisagreementError as error:
        print(f"Nothing is timed: {error}", file=sys.stderr)
        return 1
    results["seconds"] = round(time.perf_counter() - start, 1)
    path = options.output / "speed.json"
    write_json(path, results)
    print(f"\n{path} written after {results['seconds']:.0f} s.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
