"""Claim: the paper's s^2 = 0.5 and lambda = 0.4 degenerate least among the values that it tries.

The appendix's figure "uniform_loss" and table "s_lambda_choice": theta0 is learned for each scale s
of the perturbations and each weight lambda of the term against degenerate softmax, with xi = 1::

    MMDInitializer(perturbation_scale=sqrt(0.5), degeneracy_weight=0.4, n_perturbations=128)

Reported are L_uni along the steps, the share of 256 perturbed networks (of the same s) that use
fewer than all classes, and the share of dead units in the hidden layer that has most of them, both
on 128 mini-batches of 32 images. The paper takes 256 perturbed networks a step, and here there are
128, which halves the time; --n-perturbations 256 is the paper's own. --kernels mean averages the
kernels of L_uni, which the paper's text sums.

Run it (about a minute on one core), then in full (15 minutes on two cores for each of the twelve
theta0 of a run, in portions with Ctrl-C where it must be), or a part of the grid::

    python benchmarks/scale_and_weight.py --quick
    python benchmarks/scale_and_weight.py
    python benchmarks/scale_and_weight.py --squared-scales 0.5 1 --weights 0.4 --runs 4

It prints the table beside the paper's, mean +- std over the runs where there are several, draws
L_uni, and writes both as JSON with the window means of every run. What was done is kept and shown
with the rest: a part of the grid that was not run yet stands in the table as such, and the same
command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from protocol.appendix_bench import AppendixBench, Preset, add_appendix_options, prepare_appendix
from protocol.command import command_parser
from protocol.kernels import KERNELS
from protocol.options import positive, positive_number
from protocol.store import digest_of
from protocol.study import Cell, Study, run_study
from protocol.theta0_measures import N_PERTURBATIONS, measure_ratios
from reporting.scale_figure import draw_uniformity
from reporting.scale_tables import scale_text

__all__ = ["main"]

FULL = Preset(n_perturbations=128)
QUICK = Preset(n_perturbations=16, steps=100, rows=1600, n_batches=4, window=10)

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)
WEIGHTS = (0.2, 0.4, 1.0)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    add = parser.add_argument
    add(
        "--squared-scales",
        nargs="+",
        type=positive_number,
        metavar="S2",
        help="values of s squared to run; default: the paper's 0.2 0.5 1 2",
    )
    add(
        "--weights",
        nargs="+",
        type=positive_number,
        metavar="LAMBDA",
        help="values of lambda to run; default: the paper's 0.2 0.4 1",
    )
    add(
        "--runs",
        type=positive,
        default=1,
        help="each from its own seed; default: 1, the paper has 4",
    )
    add_appendix_options(parser, n_perturbations=FULL.n_perturbations)
    return parser


def _measure(bench: AppendixBench, changes: dict[str, Any], run: int) -> dict[str, Any]:
    """Learn a theta0 and look at it, with perturbations of the scale it was learned with."""
    learned = bench.learn(changes, run)
    ratios = measure_ratios(
        learned.initializer.theta0_,
        bench.X,
        seed=bench.options.seed,
        n_batches=bench.preset.n_batches,
        perturbation_scale=changes["perturbation_scale"],
    )
    history = learned.initializer.history_
    share = KERNELS[bench.network.kernels]  # the history has the sum
    return {
        **ratios,
        "steps": [window["step"] for window in history],
        "uniformity": [share * window["uniformity"] for window in history],
        "theta0": learned.record(),
    }


def _cell(bench: AppendixBench, square: float, weight: float, run: int, wanted: bool) -> Cell:
    changes = {"perturbation_scale": math.sqrt(square), "degeneracy_weight": weight}
    key = [bench.fit_key(changes, run), bench.preset.n_batches, bench.options.seed]
    return Cell(
        f"run {run}: learning and measuring theta0 with s^2 = {square:g}, lambda = {weight:g}",
        {"squared_scale": square, "degeneracy_weight": weight, "run": run},
        digest_of(key),
        partial(_measure, bench, changes, run),
        wanted,
    )


def _prepare(options: argparse.Namespace) -> Study:
    bench = prepare_appendix(options, FULL, QUICK)
    chosen_scales = options.squared_scales or SQUARED_SCALES
    chosen_weights = options.weights or WEIGHTS
    scales = sorted({*SQUARED_SCALES, *chosen_scales})
    weights = sorted({*WEIGHTS, *chosen_weights})
    cells = tuple(
        _cell(bench, square, weight, run, square in chosen_scales and weight in chosen_weights)
        for run in range(options.runs)
        for square in scales
        for weight in weights
    )
    settings = bench.settings() | {
        "squared_scales": scales,
        "weights": weights,
        "runs": options.runs,
        "networks_a_ratio": N_PERTURBATIONS,
    }
    return Study(bench.stem("scale_and_weight"), __doc__, cells, settings, options, bench.dataset)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    return run_study(parser, options, _prepare, scale_text, draw_uniformity)


if __name__ == "__main__":
    raise SystemExit(main())
