"""What ``mnist_tasks.py`` is asked to measure: its presets, and what the command line changes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from protocol.convnet_methods import CONVNET_NAMES
from protocol.methods import (
    FEATURES,
    FEATURES_CV,
    FEATURES_THETA0,
    PAPER_METHODS,
    NetworkSettings,
    select_names,
)
from protocol.network_kinds import NETWORK_KINDS
from protocol.rivals import select_rivals

__all__ = ["PRESETS", "TEN_WAY_DRAWS", "Plan", "plan_of"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    ``epochs`` and ``n_perturbations`` are the paper's objective's; ``coherent_passes`` are
    those with coherence, None where it decides itself. ``draw`` says how the labelled rows of a
    binary task are drawn, ``network`` of which kind the methods' networks are, ``augmentation``
    how images are changed along the walks of coherence, ``neighbors`` where its
    neighbours are searched, ``separation`` is its parameter, ``rounds`` how often theta0 with
    coherence is learned. ``kernels`` says how the paper's L_uni puts its kernels together.
    """

    methods: tuple[str, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int
    epochs: int
    n_perturbations: int
    coherent_passes: int | None = None
    first_run: int = 0
    classes: int = 2
    draw: str = "uniform"
    rivals: tuple[str, ...] = ()
    network: str = "mlp"
    augmentation: str = "none"
    neighbors: str = "pixels"
    separation: float = NetworkSettings.separation
    rounds: int = 1
    kernels: str = "sum"


QUICK_METHODS = ("xavier/fcn/ours", FEATURES_THETA0, FEATURES, "xavier/fcn/scratch")

# The quick plan pre-trains for two passes with fewer perturbed networks a step than the paper.
PRESETS = {
    "quick": Plan(QUICK_METHODS, (5, 10), 20, 1, 2, 64, coherent_passes=4),
    "paper": Plan(PAPER_METHODS, (5, 10, 20, 40), 20, 4, 5, 256),
}

# A ConvNet's step takes four times as long as the perceptron's. What the paper has of epochs and
# perturbed networks stays in the plan of its name.
CONVNET_PRESETS = {
    "quick": Plan(CONVNET_NAMES, (5, 10), 20, 1, 1, 32, coherent_passes=4, network="convnet"),
    "paper": Plan(CONVNET_NAMES, (5, 10, 20, 40), 20, 4, 5, 256, network="convnet"),
}

PRESETS_OF = {"mlp": PRESETS, "convnet": CONVNET_PRESETS}

# Draws of labelled rows where there is one task, which has all classes.
TEN_WAY_DRAWS = 10

# Labels of a binary task, in units of ten, from which on no class is rarer than a fold.
FEWEST_FOR_CV = 5

# MNIST's passes have 1,875 steps, those of the 1,297 digits 40: so many passes stand for one.
PASSES_FOR_ONE = {"mnist": 1, "fashion-mnist": 1, "digits": 20}


def plan_of(options: argparse.Namespace) -> Plan:
    """The preset with what the command line changes.

    Raises
    ------
    ValueError
        For an unknown method or rival, a way to draw the rows of binary tasks where there are
        none, a precision that the network does not have, or too few labels for a method.
    """
    if options.classes != 2 and options.draw != "uniform":
        raise ValueError(
            f"--draw {options.draw} is for binary tasks; with --classes {options.classes} there "
            "are N labelled rows of each class in any case"
        )
    if options.network != "mlp" and options.precision != "float32":
        raise ValueError(
            f"--precision {options.precision} is for a perceptron, got --network {options.network}"
        )
    plan = PRESETS_OF[options.network][options.preset]
    names = NETWORK_KINDS[options.network].names
    longer, quick = PASSES_FOR_ONE[options.dataset], plan.coherent_passes
    plan = replace(plan, first_run=options.first_run, classes=options.classes, draw=options.draw)
    plan = replace(plan, augmentation=options.augmentation, neighbors=options.neighbors)
    plan = replace(plan, separation=options.separation, rounds=options.rounds)
    plan = replace(plan, kernels=options.kernels)
    augmented, gradients = plan.augmentation != "none", plan.neighbors == "gradients"
    rivals = select_rivals(options.rivals, augmented=augmented, gradients=gradients)
    plan = replace(plan, rivals=tuple(rivals))
    plan = replace(plan, epochs=plan.epochs * longer)
    if quick is not None:
        plan = replace(plan, coherent_passes=quick * longer)
    if plan.classes != 2:
        plan = replace(plan, tasks=TEN_WAY_DRAWS)
    given = {
        "n_labels": tuple(sorted(set(options.n_labels))) if options.n_labels else None,
        "methods": tuple(select_names(options.methods, names)) if options.methods else None,
        "tasks": options.tasks,
        "runs": options.runs,
        "epochs": options.epochs,
        "coherent_passes": options.coherent_epochs,
        "n_perturbations": options.n_perturbations,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    by_cv = [name for name in plan.methods if name.endswith(FEATURES_CV)]
    if by_cv and plan.classes == 2 and min(plan.n_labels) < FEWEST_FOR_CV:
        raise ValueError(
            f"{by_cv[0]} chooses its penalty on parts of the labelled rows, each of which must "
            f"have both classes: with two classes N must be {FEWEST_FOR_CV} or more, got "
            f"{min(plan.n_labels)}"
        )
    return plan
