"""Claim: a step of pre-training takes half as much again as its dense products.

It measures seconds and memory of a step as the paper writes it (a copy of every weight for each
network; the same by ``torch.func.vmap``) and by ``MMDInitializer``, beside the floor: the step's
dense products at the rate of this machine's sgemm. Then come whole fits with coherence. A test
checks that what is compared learns the same.

Run it (about ten minutes on two cores), or a part::

    python benchmarks/speed.py
    python benchmarks/speed.py --sections fits

Leave the machine alone meanwhile: another program that uses its cores shows in every figure.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from protocol import command
from reporting.tables import publish
from reporting.time_tables import SPEED_KINDS
from timing.memory import measure_fit, measure_peak
from timing.steps import Step, measure_steps

SECTIONS = ("step", "fits")
PAPER = Step()
ROUNDS = 5  # of what is timed in turns

# Rows and columns of whole fits: tables, MNIST's images, and as many rows as make the search of
# neighbours another one.
FITS = ((2_000, 50), (20_000, 50), (60_000, 784), (1_000_000, 50))


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="default: all")
    add("--device", default="cpu", help="default: cpu")
    add("--output", type=Path, default=command.OUTPUT, help="folder of results")
    options = parser.parse_args(argv)
    device, sections = options.device, options.sections
    results: dict[str, Any] = {"device": device, "threads": torch.get_num_threads()}
    if "step" in sections:
        print("step ...", file=sys.stderr, flush=True)
        step = replace(PAPER, device=device)
        sizes = {"n_perturbations": step.n_perturbations, "batch_size": step.batch_size}
        results["size"] = sizes | {"network": "-".join(map(str, step.widths))}
        results["step"] = measure_steps(step, ROUNDS)
        results["memory"] = [measure_peak(step, form) for form in ("library", "direct", "vmap")]
    if "fits" in sections:
        print("fits ...", file=sys.stderr, flush=True)
        results["coherent_fits"] = [measure_fit(*size, device) for size in FITS]
    publish(parser, options, results, [kind for kind in SPEED_KINDS if kind in results])


if __name__ == "__main__":
    main()
