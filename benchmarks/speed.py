"""Claim: pre-training takes half as much again as its products, fine-tuning no more than sklearn.

First it checks that all that is compared computes the same thing, and stops where it does not.
Then it measures, all in one run on one machine and what is compared in turns:

- ``step``: seconds a pre-training step, as the paper writes it (a copy of every weight for each
  network; the same by ``torch.func.vmap``), by ``MMDInitializer``, and the floor, which is the
  step's dense matrix products at the rate of this machine's own sgemm; and the memory of each;
- ``fine-tuning``: ``MLPClassifier.fit`` beside scikit-learn's;
- ``fits``: whole fits with coherence, the search of neighbours included, and their memory;
- ``modules``: the same perceptron as an ``nn.Sequential`` in ``module=``, ConvNets' steps beside
  their dense products, and the memory against K.

Run it (about twenty minutes on two cores, or one with ``--quick``, whose figures are rough and
whose steps have a quarter of the paper's perturbed networks)::

    python benchmarks/speed.py
    python benchmarks/speed.py --quick
    python benchmarks/speed.py --sections step modules
    python benchmarks/speed.py --against ../worktree-of-an-earlier-commit

It prints the tables and writes them to ``speed.json`` in the output folder; with ``--against`` it
only prints the seconds of the library's steps by another checkout of the package and by this one.
Leave the machine alone meanwhile: another program that uses its cores shows in every figure.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protocol.command import OUTPUT, command_parser
from protocol.store import provenance, write_json
from reporting.tables import text_of
from timing.agreement import DisagreementError, check_learning, check_outputs
from timing.fine_tuning import check_training, measure_fits
from timing.probe import SIZES, compare, measure_coherent_fits, measure_peak
from timing.steps import Step, measure_modules, measure_steps

SECTIONS = ("step", "fine-tuning", "fits", "modules")
PAPER = Step()
# The first ConvNet is that of ``mnist_tasks.py --network convnet``, the last that of PyTorch's
# example of MNIST.
MODULES = {
    "perceptron": PAPER,
    "sequential": replace(PAPER, network="sequential"),
    **{f"convnet {w}": Step("convnet", n_perturbations=64, width=w) for w in (8, 16, 32)},
}
COHERENT = {"coherent": replace(PAPER, n_perturbations=32, coherent=True)}


def _agreement(quick: bool, sections: Sequence[str], device: str) -> dict[str, Any]:
    """Check that what the chosen sections compare is the same."""
    found: dict[str, Any] = {"training loss": check_training()} if "fine-tuning" in sections else {}
    for section, network in (("step", "perceptron"), ("modules", "sequential")):
        if section in sections:
            step = replace(PAPER, network=network, device=device)
            small = Step(network, 16, (12, 12), n_perturbations=64, batch_size=4, device=device)
            found[f"outputs, {network}"] = check_outputs(step, 256 if quick else 4096)
            found[f"learning, {network}"] = check_learning(small, 20 if quick else 40)
    return found


def _measure(section: str, quick: bool, device: str) -> dict[str, Any]:
    """Figures of a section, by the name of their table."""
    n_steps, rounds = (4, 2) if quick else (20, 5)
    if device != "cpu":  # where what a fit does beside its steps outweighs so few of them
        n_steps *= 20
    most = 64 if quick else 256
    if section == "fine-tuning":
        rows, threads = ((60, 240), (1,)) if quick else ((60, 120, 240, 480), (1, 2))
        return {"fine_tuning": measure_fits(rows, threads, rounds=3 if quick else 7)}
    if section == "fits":
        return {"coherent_fits": measure_coherent_fits(SIZES[:1] if quick else SIZES, device)}
    if section == "step":
        step = replace(PAPER, n_perturbations=most, device=device)
        memory = [{"form": f} | measure_peak(step, f) for f in ("library", "direct", "vmap")]
        return {"step": measure_steps(step, n_steps, rounds), "memory": memory}
    memory = [
        {"form": name.split()[0], "K": K}
        | measure_peak(replace(MODULES[name], n_perturbations=K, device=device))
        for name in ("sequential", "convnet 8")
        for K in (64, 128, 256, 512)
    ]
    steps = {
        name: replace(step, n_perturbations=min(step.n_perturbations, most), device=device)
        for name, step in MODULES.items()
    }
    return {"modules": measure_modules(steps, n_steps, rounds), "module_memory": memory}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="rough figures in about a minute")
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="default: all")
    add("--device", default="cpu", help="of all but 'fine-tuning' (default: cpu)")
    add("--output", type=Path, default=OUTPUT, help="for speed.json")
    add("--against", type=Path, help="a checkout of the package whose steps to compare with")
    options = parser.parse_args(argv)
    if options.against:
        steps = MODULES | COHERENT
        steps = {name: replace(step, device=options.device) for name, step in steps.items()}
        compare(options.against, steps, rounds=2 if options.quick else 10)
        return 0
    start = time.perf_counter()
    results: dict[str, Any] = {
        "quick": options.quick,
        "device": options.device,
        "threads": torch.get_num_threads(),
        **provenance(),
        "size": {
            "n_perturbations": 64 if options.quick else PAPER.n_perturbations,
            "batch_size": PAPER.batch_size,
            "network": "-".join(map(str, PAPER.widths)),
        },
    }
    try:
        results["agreement"] = _agreement(options.quick, options.sections, options.device)
    except DisagreementError as error:
        print(f"Nothing is timed: {error}", file=sys.stderr)
        return 1
    print(f"All forms agree ({time.perf_counter() - start:.0f} s).", flush=True)
    for section in options.sections:
        found = _measure(section, options.quick, options.device)
        results |= found
        for kind in found:
            print(f"\n{text_of(results, [kind])}", flush=True)
    results["seconds"] = round(time.perf_counter() - start, 1)
    write_json(options.output / "speed.json", results)
    print(f"\n{options.output / 'speed.json'} written after {results['seconds']:.0f} s.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
