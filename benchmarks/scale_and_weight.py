"""Claim: s^2 = 0.5 and lambda = 0.4 degenerate least, says the paper; here other cells do.

The appendix's figure "uniform_loss" and table "s_lambda_choice": theta0 is learned for each scale s
of the perturbations and each weight lambda of the term against degenerate softmax, with xi = 1.
Reported are L_uni along the steps, the share of 256 perturbed networks (of the same s) that use
fewer than all classes, and the share of dead units in the hidden layer that has most of them, both
on 128 mini-batches of 32 images. The paper takes 256 perturbed networks a step, and here there are
128, which halves the time; --n-perturbations 256 is the paper's own.

Run it (15 minutes on two cores for each of the twelve theta0 of a run, in portions with Ctrl-C
where it must be)::

    python benchmarks/scale_and_weight.py --runs 4
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from protocol import studies
from protocol.command import command_parser, run_command
from protocol.methods import KERNELS
from reporting.tables import text_of

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)
WEIGHTS = (0.2, 0.4, 1.0)


def _cell(appendix: studies.Appendix, square: float, weight: float, run: int) -> studies.Cell:
    changes = {"perturbation_scale": math.sqrt(square), "degeneracy_weight": weight}

    def measure() -> dict[str, Any]:
        """Learn theta0 and look at it, with perturbations of the scale it was learned with."""
        learned = appendix.learned(changes, run)
        fitted = learned.initializer
        share = KERNELS[appendix.network.kernels]  # the history has the sum
        scale = changes["perturbation_scale"]
        return {
            **studies.measure_ratios(
                fitted.theta0_, appendix.X, seed=appendix.seed, perturbation_scale=scale
            ),
            "steps": [window["step"] for window in fitted.history_],
            "uniformity": [share * window["uniformity"] for window in fitted.history_],
            "theta0": learned.record(),
        }

    name = f"run {run}: theta0 with s^2 = {square:g}, lambda = {weight:g}"
    head = {"squared_scale": square, "degeneracy_weight": weight, "run": run}
    return name, head, appendix.key(changes, run), measure


def _measure(appendix: studies.Appendix) -> dict[str, Any]:
    grid = product(range(appendix.options.runs), SQUARED_SCALES, WEIGHTS)
    cells = [_cell(appendix, square, weight, run) for run, square, weight in grid]
    return appendix.measured("scale_and_weight", cells, networks_a_ratio=studies.N_PERTURBATIONS)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    studies.add_objective_options(parser, n_perturbations=128)
    text = text_of("scale_and_weight")
    return run_command(parser, argv, studies.prepare_appendix, _measure, text)


if __name__ == "__main__":
    raise SystemExit(main())
