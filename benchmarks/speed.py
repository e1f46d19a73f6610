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

Run it (about twenty minutes on two cores), or a part::

    python benchmarks/speed.py
    python benchmarks/speed.py --sections step modules
    python benchmarks/speed.py --against ../worktree-of-an-earlier-commit

With ``--against`` it measures the library's steps (section ``modules``) and whole fits with
coherence (``fits``) by another checkout of the package and by this one, in turns, and writes
``speed-against.json``. A fit is timed only if
L_coh at its end differs by less than 5 % between the two.
Leave the machine alone meanwhile: another program that uses its cores shows in every figure.
"""

import argparse
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
from timing.checks import check_learning, check_outputs
from timing.classifier_fits import check_training, measure_fits
from timing.probe import (
    Fit,
    compare_fits,
    compare_steps,
    measure_coherent_fits,
    measure_peak,
)
from timing.steps import Step, measure_modules, measure_steps

SECTIONS = ("step", "fine-tuning", "fits", "modules")
PAPER = Step()
ROUNDS = 5  # of what is timed in turns
FIT_ROUNDS = 2  # of whole fits beside another checkout, which take minutes
# The first ConvNet is that of ``mnist_tasks.py --network convnet``, the last that of PyTorch's
# example of MNIST.
MODULES = {
    "perceptron": PAPER,
    "sequential": replace(PAPER, network="sequential"),
    **{f"convnet {w}": Step("convnet", n_perturbations=64, width=w) for w in (8, 16, 32)},
}
FITS = {
    "digits": Fit((64, 64), 10),
    **{
        f"{n:,} x {p}": Fit((392, 392, 392), 4, n, p)
        for n, p in ((300, 20), (2_000, 30), (20_000, 50))
    },
}
LARGE = {"60,000 images": Fit((392, 392, 392), 10, 60_000, images=True)}


def check_agreement(sections: Sequence[str], device: str) -> dict[str, Any]:
    """How far forms that should compute the same are apart; an error where it is too far."""
    apart: dict[str, Any] = {"training loss": check_training()} if "fine-tuning" in sections else {}
    for section, network in (("step", "perceptron"), ("modules", "sequential")):
        if section in sections:
            step = replace(PAPER, network=network, device=device)
            small = Step(network, 16, (12, 12), n_perturbations=64, batch_size=4, device=device)
            apart[f"outputs, {network}"] = check_outputs(step, 4096)
            apart[f"learning, {network}"] = check_learning(small, 40)
    return apart


def figures_of(section: str, device: str) -> dict[str, Any]:
    """Figures of a section, by the name of their table."""
    if section == "fine-tuning":
        return {"fine_tuning": measure_fits((60, 120, 240, 480), (1, 2), rounds=7)}
    if section == "fits":
        return {"coherent_fits": measure_coherent_fits(device=device)}
    if section == "step":
        step = replace(PAPER, device=device)
        memory = [{"form": f} | measure_peak(step, f) for f in ("library", "direct", "vmap")]
        return {"step": measure_steps(step, ROUNDS), "memory": memory}
    memory = [
        {"form": name.split()[0], "K": K}
        | measure_peak(replace(MODULES[name], n_perturbations=K, device=device))
        for name in ("sequential", "convnet 8")
        for K in (64, 128, 256, 512)
    ]
    steps = {name: replace(step, device=device) for name, step in MODULES.items()}
    return {"modules": measure_modules(steps, ROUNDS), "module_memory": memory}


def measure_against(options: argparse.Namespace) -> dict[str, Any]:
    """Steps and fits by another checkout and by this one, and what they were made with."""
    steps = {name: replace(step, device=options.device) for name, step in MODULES.items()}
    measured: dict[str, Any] = {}
    if "modules" in options.sections:
        measured["steps"] = compare_steps(options.against, steps, 2 * ROUNDS)
    if "fits" in options.sections:
        fits = FITS | (LARGE if options.large else {})
        measured["fits"] = compare_fits(options.against, fits, FIT_ROUNDS)
    commits = {"old": commit(options.against.resolve()), "new": commit()}
    about = {"device": options.device, "threads": torch.get_num_threads(), "commits": commits}
    return about | provenance() | measured


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--sections", nargs="+", choices=SECTIONS, default=SECTIONS, help="default: all")
    add("--device", default="cpu", help="of all but 'fine-tuning' (default: cpu)")
    add("--output", type=Path, default=command.OUTPUT, help="folder of results")
    add("--against", type=Path, help="a checkout of the package to compare steps and fits with")
    add("--large", action="store_true", help="with --against: a fit of 60,000 images too")
    options = parser.parse_args(argv)
    if options.against:
        write_json(options.output / "speed-against.json", measure_against(options))
        return
    with command.refusing(parser):
        agreement = check_agreement(options.sections, options.device)
    results: dict[str, Any] = {
        "device": options.device,
        "threads": torch.get_num_threads(),
        "size": {
            "n_perturbations": PAPER.n_perturbations,
            "batch_size": PAPER.batch_size,
            "network": "-".join(map(str, PAPER.widths)),
        },
        "agreement": agreement,
    }
    for section in options.sections:
        print(f"{section} ...", file=sys.stderr, flush=True)
        results |= figures_of(section, options.device)
    publish(parser, options, results, [kind for kind in SPEED_KINDS if kind in results])


if __name__ == "__main__":
    main()
