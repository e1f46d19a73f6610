"""Claim: s^2 = 0.5 and lambda = 0.4 degenerate least, says the paper; here other cells do.

The appendix's figure "uniform_loss" and table "s_lambda_choice": theta0 is learned for each scale s
of the perturbations and each weight lambda of the term against degenerate softmax, with xi = 1.
Reported are L_uni along the steps, degenerate softmax, and the share of dead units in the hidden
layer that has most of them. The paper takes 256 perturbed networks a step, and here there are 128,
which halves the time; --n-perturbations 256 is the paper's own.

Run it (15 minutes on two cores for each of the twelve theta0 of a run, in portions with Ctrl-C
where it must be)::

    python benchmarks/scale_and_weight.py --runs 4
"""

import math
from collections.abc import Sequence
from itertools import product

from protocol import studies
from reporting.tables import publish

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)
WEIGHTS = (0.2, 0.4, 1.0)


def main(argv: Sequence[str] | None = None) -> None:
    cells = [
        (
            {"squared_scale": square, "degeneracy_weight": weight},
            {"perturbation_scale": math.sqrt(square), "degeneracy_weight": weight},
        )
        for square, weight in product(SQUARED_SCALES, WEIGHTS)
    ]
    publish(*studies.run_appendix(__file__, __doc__, argv, cells, K=128), ["scale_and_weight"])


if __name__ == "__main__":
    main()
