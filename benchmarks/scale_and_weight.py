"""Claim: the paper's s^2 = 0.5 and lambda = 0.4 degenerate least among the values that it tries.

The appendix's figure "uniform_loss" and table "s_lambda_choice": theta0 is learned for each scale s
of the perturbations and each weight lambda of the term against degenerate softmax, with xi = 1.
Reported are L_uni along the steps, the share of 256 perturbed networks (of the same s) that use
fewer than all classes, and the share of dead units in the hidden layer that has most of them, both
on 128 mini-batches of 32 images. The paper takes 256 perturbed networks a step, and here there are
128, which halves the time; --n-perturbations 256 is the paper's own.

Run it (about a minute on one core), then in full (15 minutes on two cores for each of the twelve
theta0 of a run, in portions with Ctrl-C where it must be), or a part of the grid::

    python benchmarks/scale_and_weight.py --quick
    python benchmarks/scale_and_weight.py
    python benchmarks/scale_and_weight.py --squared-scales 0.5 1 --weights 0.4 --runs 4
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from protocol import studies
from protocol.command import command_parser, positive, positive_number
from protocol.methods import KERNELS
from protocol.store import digest_of
from reporting.tables import text_of

FULL = studies.Preset(n_perturbations=128)
QUICK = studies.Preset(n_perturbations=16, steps=100, rows=1600, n_batches=4, window=10)

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
    studies.add_appendix_options(parser, n_perturbations=FULL.n_perturbations)
    return parser


def _measure(appendix: studies.Appendix, changes: dict[str, Any], run: int) -> dict[str, Any]:
    """Learn a theta0 and look at it, with perturbations of the scale it was learned with."""
    learned = appendix.learn(changes, run)
    fitted = learned.initializer
    share = KERNELS[appendix.bench.network.kernels]  # the history has the sum
    return {
        **appendix.ratios(fitted.theta0_, perturbation_scale=changes["perturbation_scale"]),
        "steps": [window["step"] for window in fitted.history_],
        "uniformity": [share * window["uniformity"] for window in fitted.history_],
        "theta0": learned.record(),
    }


def _cell(
    appendix: studies.Appendix, square: float, weight: float, run: int, wanted: bool
) -> studies.Cell:
    changes = {"perturbation_scale": math.sqrt(square), "degeneracy_weight": weight}
    key = [appendix.fit_key(changes, run), appendix.preset.n_batches, appendix.seed]
    return studies.Cell(
        f"run {run}: learning and measuring theta0 with s^2 = {square:g}, lambda = {weight:g}",
        {"squared_scale": square, "degeneracy_weight": weight, "run": run},
        digest_of(key),
        partial(_measure, appendix, changes, run),
        wanted,
    )


def _prepare(options: argparse.Namespace) -> studies.Study:
    appendix = studies.prepare_appendix(options, FULL, QUICK)
    chosen_scales = options.squared_scales or SQUARED_SCALES
    chosen_weights = options.weights or WEIGHTS
    scales = sorted({*SQUARED_SCALES, *chosen_scales})
    weights = sorted({*WEIGHTS, *chosen_weights})
    cells = [
        _cell(appendix, square, weight, run, square in chosen_scales and weight in chosen_weights)
        for run, square, weight in product(range(options.runs), scales, weights)
    ]
    settings = {
        "squared_scales": scales,
        "weights": weights,
        "runs": options.runs,
        "networks_a_ratio": studies.N_PERTURBATIONS,
    }
    return appendix.study("scale_and_weight", __doc__, cells, settings)


_text = partial(text_of, kinds=("scale_and_weight",))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    return studies.run_study(_parser(), argv, _prepare, _text)


if __name__ == "__main__":
    raise SystemExit(main())
