"""Claim: pre-training takes little more than its matrix products, fine-tuning no more than sklearn.

First it checks that all that is compared computes the same thing, and stops where it does not.
Then it measures, all in one run on one machine and what is compared in turns:

- ``step``: seconds a pre-training step, as the paper writes it (a copy of every weight for each
  network; the same by ``torch.func.vmap``), by ``MMDInitializer``, and the floor, which is the
  step's dense matrix products at the rate of this machine's own sgemm; and the memory of each;
- ``scaling``: time and memory against K, B, width, depth and d;
- ``fine-tuning``: ``MLPClassifier.fit`` beside scikit-learn's and a plain PyTorch loop;
- ``modules``: the same perceptron as an ``nn.Sequential`` in ``module=``, ConvNets' steps beside
  their dense products, and the memory against K.

Run it (about ten minutes on two cores, or about one with ``--quick``, whose figures are rough and
whose steps have a quarter of the paper's perturbed networks)::

    python benchmarks/speed.py
    python benchmarks/speed.py --quick
    python benchmarks/speed.py --sections step modules
    python benchmarks/speed.py --against ../worktree-of-an-earlier-commit

It prints the tables and writes them to ``speed.json`` in the output folder; with ``--against``
only the seconds of the library's steps by another checkout of the package and by this one. Leave
the machine alone meanwhile: another program that uses its cores shows in every figure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protocol.provenance import provenance
from protocol.store import write_json
from reporting.speed_tables import build_speed_table, machine_line
from reporting.table import as_text
from timing.agreement import DisagreementError, check_learning, check_outputs
from timing.fine_tuning import check_training, measure_fits
from timing.probe import compare, in_own_process, measure_memory, measure_scaling
from timing.steps import Step, measure_modules, measure_steps

__all__ = ["main"]

SECTIONS = ("step", "scaling", "fine-tuning", "modules")
PAPER, QUICK = Step(), Step(n_perturbations=64)
# The first ConvNet is that of ``mnist_tasks.py --network convnet``, the last that of PyTorch's
# example of MNIST.
MODULES = {
    "perceptron": PAPER,
    "sequential": replace(PAPER, network="sequential"),
    **{f"convnet {w}": Step("convnet", n_perturbations=64, width=w) for w in (8, 16, 32)},
}
AGAINST = {
    **MODULES,
    "perceptron, 10 classes": replace(PAPER, n_classes=10),
    "coherent": replace(PAPER, n_perturbations=32, coherent=True),
    "coherent convnet 8": Step("convnet", n_perturbations=32, coherent=True),
}


def _agreement(quick: bool, networks: Sequence[str]) -> dict[str, Any]:
    """Check the law of what a step computes, at the paper's size and by learning at a small one."""
    found: dict[str, Any] = {}
    for network in networks:
        small = Step(network, 16, (12, 12), n_perturbations=64, batch_size=4)
        found[f"outputs of the {network}"] = check_outputs(
            replace(PAPER, network=network), n_networks=256 if quick else 4096
        )
        found[f"learning of the {network}"] = check_learning(small, 6 if quick else 30)
    return found


def _measure(section: str, quick: bool, device: str) -> dict[str, Any]:
    """Figures of a section, by the name of their table."""
    size = QUICK if quick else PAPER
    n_steps, rounds = (4, 2) if quick else (20, 5)
    if section == "step":
        found = measure_steps(size, n_steps, rounds, device)
        return {"step": found, "memory": measure_memory(size)}
    if section == "scaling":
        return {"scaling": measure_scaling(size, quick)}
    if section == "fine-tuning":
        rows, threads = ((60, 240), (1,)) if quick else ((60, 120, 240, 480), (1, 2))
        return {"fine_tuning": measure_fits(rows, threads, rounds=3 if quick else 7)}
    memory = [
        {"form": name.split()[0], "K": K}
        | in_own_process(replace(MODULES[name], n_perturbations=K))
        for name in ("sequential", "convnet 8")
        for K in ((16, 64) if quick else (64, 128, 256, 512))
    ]
    return {"modules": measure_modules(MODULES, n_steps, rounds, device), "module_memory": memory}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="rough figures in about a minute")
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="default: all")
    add("--device", default="cpu", help="of 'step' and 'modules' (default: cpu)")
    add("--threads", type=int, help="of PyTorch (default: its own choice)")
    add("--output", type=Path, default=Path(__file__).parent / "output", help="for speed.json")
    add("--against", type=Path, help="a checkout of the package to compare this one with")
    add("--steps", nargs="+", choices=AGAINST, default=AGAINST, help="of --against (default: all)")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.against:
        steps = {name: AGAINST[name] for name in options.steps}
        compare(options.against, steps, rounds=2 if options.quick else 7)
        return 0
    start = time.perf_counter()
    size = QUICK if options.quick else PAPER
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
    networks = ["perceptron"] if {"step", "scaling"} & set(options.sections) else []
    networks += ["sequential"] if "modules" in options.sections else []
    try:
        results["agreement"] = _agreement(options.quick, networks)
        if "fine-tuning" in options.sections:
            results["agreement"]["training loss"] = check_training()
    except DisagreementError as error:
        print(f"Nothing is timed: {error}", file=sys.stderr)
        return 1
    print(f"All forms agree ({time.perf_counter() - start:.0f} s).", flush=True)
    for section in options.sections:
        found = _measure(section, options.quick, options.device)
        results |= found
        for kind in found:
            print(f"\n{as_text(build_speed_table(kind, results))}", flush=True)
    results["seconds"] = round(time.perf_counter() - start, 1)
    write_json(options.output / "speed.json", results)
    print(f"\n{options.output / 'speed.json'} written after {results['seconds']:.0f} s.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
