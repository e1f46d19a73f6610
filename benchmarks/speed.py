"""Claim: a step of pre-training takes half as much again as its dense products.

First it checks that all that is compared learns the same, and stops where it does not. Then it
measures, all in one run on one machine and what is compared in turns:

- ``step``: seconds a pre-training step, as the paper writes it (a copy of every weight for each
  network; the same by ``torch.func.vmap``), by ``MMDInitializer``, and the floor, which is the
  step's dense matrix products at the rate of this machine's own sgemm; and the memory of each;
- ``fits``: whole fits with coherence, the search of neighbours included, and their memory.

Run it (about ten minutes on two cores), or a part::

    python benchmarks/speed.py
    python benchmarks/speed.py --sections fits
    python benchmarks/speed.py --against ../worktree-of-an-earlier-commit

With ``--against`` it measures the library's steps, a ConvNet's among them, and whole fits by
another checkout of the package and by this one, in turns, and writes ``speed-against.json``. A fit
is timed only if L_coh at its end differs by less than 5 % between the two. Leave the machine alone
meanwhile: another program that uses its cores shows in every figure.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protocol import command
from protocol.store import commit, provenance, write_json
from reporting.tables import publish
from reporting.time_tables import SPEED_KINDS
from timing.checks import check_learning
from timing.probe import compare_fits, compare_steps, measure_fits, measure_peak
from timing.steps import Step, measure_steps

SECTIONS = ("step", "fits")
PAPER = Step()
SMALL = Step(n_features=16, hidden_layer_sizes=(12, 12), n_perturbations=64, batch_size=4)
# The ConvNet is that of ``mnist_tasks.py --network convnet``.
STEPS = {"perceptron": PAPER, "convnet": Step("convnet", n_perturbations=64)}
ROUNDS = 5  # of what is timed in turns
FIT_ROUNDS = 2  # of whole fits beside another checkout, which take minutes

# Rows and columns of whole fits: tables, MNIST's images, and as many rows as make the search of
# neighbours another one.
FITS = ((2_000, 50), (20_000, 50), (60_000, 784), (1_000_000, 50))
FITS_AGAINST = ((300, 20), (2_000, 50), (20_000, 50))


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="default: all")
    add("--device", default="cpu", help="default: cpu")
    add("--output", type=Path, default=command.OUTPUT, help="folder of results")
    add("--against", type=Path, help="a checkout of the package to compare with, on the CPU")
    options = parser.parse_args(argv)
    device, sections = options.device, options.sections
    results: dict[str, Any] = {"device": device, "threads": torch.get_num_threads()}
    if options.against:
        commits = {"old": commit(options.against.resolve()), "new": commit()}
        results |= {"commits": commits} | provenance()
        if "step" in sections:
            results["steps"] = compare_steps(options.against, STEPS, 2 * ROUNDS)
        if "fits" in sections:
            results["fits"] = compare_fits(options.against, FITS_AGAINST, FIT_ROUNDS)
        write_json(options.output / "speed-against.json", results)
        return
    if "step" in sections:
        with command.refusing(parser):
            results["agreement"] = check_learning(replace(SMALL, device=device), 40)
        print("step ...", file=sys.stderr, flush=True)
        step = replace(PAPER, device=device)
        sizes = {"n_perturbations": step.n_perturbations, "batch_size": step.batch_size}
        results["size"] = sizes | {"network": "-".join(map(str, step.widths))}
        results["step"] = measure_steps(step, ROUNDS)
        results["memory"] = [measure_peak(step, form) for form in ("library", "direct", "vmap")]
    if "fits" in sections:
        print("fits ...", file=sys.stderr, flush=True)
        results["coherent_fits"] = measure_fits(FITS, device)
    publish(parser, options, results, [kind for kind in SPEED_KINDS if kind in results])


if __name__ == "__main__":
    main()
