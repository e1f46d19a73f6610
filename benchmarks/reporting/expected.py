"""What a whole reproduction consists of: each item, its file, and what to run where it is missing.

This is the one place that names files of results to come. A file that appears in
``benchmarks/results`` is read by the report from then on, whole or in part.
"""

from __future__ import annotations

from typing import Any

from protocol.convnet_methods import CONVNET_FEATURES, CONVNET_FEATURES_THETA0, CONVNET_NAMES
from protocol.methods import METHODS, PAPER_METHODS
from protocol.rivals import RIVALS
from reporting.estimate import PAPER_RUNS
from reporting.expected_averaged import (
    AVERAGED,
    DEGENERACIES_AVERAGED,
    SCALE_AVERAGED,
    SHARES,
    SHORT,
    SHORT_AVERAGED,
)
from reporting.item import Expected, measured_once, records_in, runs_of, settings_in

__all__ = [
    "BALANCED",
    "BATCH_NORM",
    "CONVNET",
    "CONVNET_TEN_WAY",
    "DEGENERACIES",
    "DETACHMENT",
    "DETACHMENT_AT_ACTIVATION",
    "EXPECTED",
    "SCALE",
    "SCRATCH_NETWORKS",
    "TABLES_HE",
    "TABLES_XAVIER",
    "THEOREMS",
]


def _theorems(results: dict[str, Any]) -> int:
    return len({record["theorem"] for record in results["records"]})


TASKS = "python benchmarks/mnist_tasks.py --preset paper"
COHERENT = ("xavier/fcn/ours+coherence", "features+logistic", "xavier/fcn/scratch")
COHERENT_CV = (*COHERENT[:2], "features+logistic-cv", *COHERENT[2:])


def _tables(init: str, words: str) -> Expected:
    names = tuple(name for name in PAPER_METHODS if METHODS[name].init == init)
    return Expected(
        f"Tables 1 and 2, {words}: five networks, four runs",
        "mnist-full.json",
        TASKS,
        "four hours on 2 cores, Xavier and He together",
        len(names) * PAPER_RUNS,
        runs_of(names, PAPER_RUNS),
    )


TABLES_XAVIER = _tables("xavier", "Xavier")
TABLES_HE = _tables("he", "He")
SCRATCH_NETWORKS = tuple(n for n in PAPER_METHODS if METHODS[n].pretraining == "scratch")
"""The paper's rows that need no theta0."""

BALANCED = Expected(
    "Networks from scratch with exactly N labelled images of each digit, four runs",
    "mnist-balanced.json",
    f"{TASKS} --draw balanced --methods '*/scratch'",
    "five minutes on 2 cores",
    len(SCRATCH_NETWORKS) * PAPER_RUNS,
    runs_of(SCRATCH_NETWORKS, PAPER_RUNS),
)
OF_BATCH_NORM = tuple(
    f"xavier/{net}/{way}" for net in ("fcn", "fcn+bn") for way in ("ours", "scratch")
)
BATCH_NORM = Expected(
    "The network with batch normalisation by the paper's objective, which the paper lacks: one "
    "pass with K = 64, four runs",
    "mnist-batch-norm.json",
    f"{TASKS} --epochs 1 --n-perturbations 64 --n-labels 5 20 --methods {' '.join(OF_BATCH_NORM)}",
    "half an hour on 2 cores",
    len(OF_BATCH_NORM) * PAPER_RUNS,
    runs_of(OF_BATCH_NORM, PAPER_RUNS),
)
DEGENERACIES = Expected(
    "Degenerate softmax, dead neurons and densities of predictions (appendix)",
    "degeneracies.json",
    "python benchmarks/degeneracies.py",
    "two hours on 2 cores",
    4,
    settings_in,
)
DETACHMENT = Expected(
    "Detachment near theta0 (appendix)",
    "detachment-nearby.json",
    "python benchmarks/detachment_nearby.py",
    "ten minutes on 2 cores",
    1,
    measured_once,
)
DETACHMENT_AT_ACTIVATION = Expected(
    "The same with Jacobians with respect to activations",
    "detachment-nearby-at-activation.json",
    f"{DETACHMENT.command} --jacobian-at activation",
    DETACHMENT.time,
    1,
    measured_once,
)
SCALE = Expected(
    "Scale of the perturbations and weight of degeneracy (appendix), four runs",
    "scale-and-weight.json",
    "python benchmarks/scale_and_weight.py --runs 4",
    "12 hours on 2 cores",
    12 * PAPER_RUNS,
    records_in,
)
THEOREMS = Expected(
    "The three theorems in numbers",
    "theorems.json",
    "python benchmarks/theorems.py",
    "a minute on one core",
    3,
    _theorems,
)
RIVAL_RUNS = Expected(
    "Rivals, four runs",
    "mnist-rivals.json",
    f"{TASKS} --methods xavier/fcn/scratch --rivals '*'",
    "an hour on 2 cores",
    len(RIVALS) * PAPER_RUNS,
    runs_of(RIVALS, PAPER_RUNS),
)


def _coherent(
    what: str, file: str, options: str, minutes: int, *, runs: int = PAPER_RUNS, cv: bool = False
) -> Expected:
    names = COHERENT_CV if cv else COHERENT
    command = f"{TASKS} --rivals --methods {' '.join(names)} {options}".rstrip()
    time, count = f"{minutes} minutes on 2 cores", runs_of(names, runs)
    return Expected(f"Coherence {what}", file, command, time, len(names) * runs, count)


COHERENCE = _coherent("on MNIST, four runs", "mnist-coherence.json", "", 40)
FASHION = _coherent(
    "on Fashion-MNIST, four runs", "fashion-coherence.json", "--dataset fashion-mnist", 40
)
IN_TEN = "--classes 10 --n-labels 10 --runs 1"
TEN_WAY = _coherent("on the ten digits themselves", "mnist-ten-way.json", IN_TEN, 10, runs=1)
AUGMENTED_MNIST = _coherent(
    "with augmentation on MNIST, four runs",
    "mnist-augmented.json",
    "--augmentation digits",
    50,
)
AUGMENTED_TEN_WAY = _coherent(
    "with augmentation on the ten digits themselves",
    "mnist-ten-way-augmented.json",
    f"{IN_TEN} --augmentation digits",
    10,
    runs=1,
    cv=True,
)
TWO_ROUNDS_MNIST = _coherent(
    "with augmentation on MNIST in two rounds, four runs",
    "mnist-two-rounds.json",
    "--augmentation digits --rounds 2",
    80,
)
TWO_ROUNDS_TEN_WAY = _coherent(
    "with augmentation on the ten digits themselves in two rounds",
    "mnist-ten-way-two-rounds.json",
    f"{IN_TEN} --augmentation digits --rounds 2",
    20,
    runs=1,
    cv=True,
)
GRADIENTS_MNIST = _coherent(
    "with augmentation and neighbours by gradients on MNIST, four runs",
    "mnist-gradients.json",
    "--augmentation digits --neighbors gradients",
    50,
)
GRADIENTS_TEN_WAY = _coherent(
    "with augmentation and neighbours by gradients on the ten digits themselves",
    "mnist-ten-way-gradients.json",
    f"{IN_TEN} --augmentation digits --neighbors gradients",
    10,
    runs=1,
    cv=True,
)
GRADIENTS_FASHION = _coherent(
    "with neighbours by gradients on Fashion-MNIST, four runs",
    "fashion-gradients.json",
    "--dataset fashion-mnist --neighbors gradients --separation 4",
    40,
)
CLOTHES = _coherent(
    "with augmentation and neighbours by gradients on Fashion-MNIST, four runs",
    "fashion-augmented.json",
    "--dataset fashion-mnist --neighbors gradients --separation 4 --augmentation clothes",
    50,
)
CONVNET_RUNS = 2
CONVNET_COHERENT = tuple(name for name in CONVNET_NAMES if name != "convnet/ours")
CONVNET = Expected(
    "A convolutional network on MNIST, two runs",
    "mnist-convnet.json",
    f"{TASKS} --network convnet --runs {CONVNET_RUNS} --epochs 1 --n-perturbations 64",
    "an hour on 2 cores",
    len(CONVNET_NAMES) * CONVNET_RUNS,
    runs_of(CONVNET_NAMES, CONVNET_RUNS),
)
CONVNET_TEN_WAY = Expected(
    "A convolutional network on the ten digits themselves",
    "mnist-convnet-ten-way.json",
    f"{TASKS} --network convnet --runs 1 --classes 10 --n-labels 10 --methods "
    f"{' '.join(CONVNET_COHERENT)}",
    "40 minutes on 2 cores",
    len(CONVNET_COHERENT),
    runs_of(CONVNET_COHERENT, 1),
)
AUGMENTED_CONVNET = (CONVNET_FEATURES_THETA0, CONVNET_FEATURES)


def _ten_way_convnet(what: str, file: str, options: str) -> Expected:
    return Expected(
        f"A convolutional network on the ten digits themselves, {what}",
        file,
        f"{TASKS} --network convnet {IN_TEN} {options} --methods {' '.join(AUGMENTED_CONVNET)}",
        "20 minutes on 2 cores",
        len(AUGMENTED_CONVNET),
        runs_of(AUGMENTED_CONVNET, 1),
    )


CONVNET_TEN_WAY_AUGMENTED = _ten_way_convnet(
    "with augmentation", "mnist-convnet-ten-way-augmented.json", "--augmentation digits"
)
CONVNET_TEN_WAY_GRADIENTS = _ten_way_convnet(
    "with augmentation and neighbours by gradients",
    "mnist-convnet-ten-way-gradients.json",
    "--augmentation digits --neighbors gradients",
)
CONVNET_GRADIENTS = Expected(
    "A convolutional network on MNIST, with augmentation and neighbours by gradients, two runs",
    "mnist-convnet-gradients.json",
    f"{TASKS} --network convnet --runs {CONVNET_RUNS} --augmentation digits --neighbors gradients "
    f"--methods {' '.join(AUGMENTED_CONVNET)}",
    "half an hour on 2 cores",
    len(AUGMENTED_CONVNET) * CONVNET_RUNS,
    runs_of(AUGMENTED_CONVNET, CONVNET_RUNS),
)
TIME = Expected(
    "Accuracy against pre-training time, by objective",
    "coherence.json",
    "python benchmarks/coherence.py --passes 1 4 13 --paper-passes 1 2",
    "an hour on 2 cores",
    1,
    measured_once,
)
BUDGET = Expected(
    "Accuracy against pre-training time, the paper's objective under several settings",
    "mnist-budget.json",
    "python benchmarks/budget.py",
    "two hours on 2 cores",
    1,
    measured_once,
)
TUNING = Expected(
    "A fine-tuning of scratch chosen for few labels",
    "tuned-scratch.json",
    "python benchmarks/tune_scratch.py --jobs 1",
    "40 minutes on one core",
    1,
    measured_once,
)

EXPECTED = (
    TABLES_XAVIER,
    TABLES_HE,
    BALANCED,
    BATCH_NORM,
    AVERAGED,
    SHORT,
    SHORT_AVERAGED,
    SHARES,
    DEGENERACIES,
    DEGENERACIES_AVERAGED,
    SCALE,
    SCALE_AVERAGED,
    DETACHMENT,
    DETACHMENT_AT_ACTIVATION,
    THEOREMS,
    RIVAL_RUNS,
    TUNING,
    COHERENCE,
    FASHION,
    TEN_WAY,
    AUGMENTED_MNIST,
    AUGMENTED_TEN_WAY,
    TWO_ROUNDS_MNIST,
    TWO_ROUNDS_TEN_WAY,
    GRADIENTS_MNIST,
    GRADIENTS_TEN_WAY,
    GRADIENTS_FASHION,
    CLOTHES,
    CONVNET,
    CONVNET_TEN_WAY,
    CONVNET_TEN_WAY_AUGMENTED,
    CONVNET_TEN_WAY_GRADIENTS,
    CONVNET_GRADIENTS,
    TIME,
    BUDGET,
)
"""Every item, in the order of the report."""
