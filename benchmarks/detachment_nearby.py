"""Claim: where L_iod is minimised it falls nearby too, and less and less the farther away.

The appendix's figure "iodloss_nearby". The paper's third term L_iod, which is 0 where the rows of
the Jacobians of the logits have unit norm and 1 for a constant function, is minimised alone, and
measured along the way at theta0 and at theta0 + epsilon, with epsilon of the paper's law for
s^2 = 0.2, 0.5, 1 and 2. The perturbed networks of the other terms have no weight here, so that one
pre-training with two of them, the fewest there can be, serves the four panels.

Run it (under ten minutes on two cores each)::

    python benchmarks/detachment_nearby.py --init he
    python benchmarks/detachment_nearby.py

The paper has no figures here, only its finding: L_iod nearby falls with that of theta0 for
s^2 = 0.2 and 0.5, and less and less for larger s. Here it does so from He's weights, and from
Xavier's for s^2 = 0.2 alone. Values above 1 come from rows longer than 2, and are no sign of a
constant function.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from protocol import studies
from protocol.command import command_parser, run_command
from protocol.store import digest_of
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0s import fit_key
from reporting.tables import text_of
from sklearn_mmdinit import Theta0
from sklearn_mmdinit.theory import perturbation_std

SQUARED_SCALES = (0.2, 0.5, 1.0, 2.0)

# The loss is L_iod alone. A window longer than any run: none ends, and so theta0 is the last one
# and not that of the best window.
CHANGES: dict[str, Any] = {
    "uniformity_weight": 0.0,
    "degeneracy_weight": 0.0,
    "detachment_weight": 1.0,
    "n_perturbations": 2,
    "window": 10**9,
}

# Images on which L_iod is measured, and perturbations, as many as the paper has.
N_ROWS, N_DRAWS = 1024, 4


def log_spaced_steps(last: int) -> list[int]:
    """Whole numbers from 1 to the last, six a decade, wider below 10."""
    n = math.ceil(6 * math.log10(last))
    return sorted({*(round(10 ** (i / 6)) for i in range(n)), last})


def perturbed(theta0: Theta0, noise: np.ndarray, perturbation_scale: float) -> Theta0:
    """Theta0 plus a perturbation of the paper's standard deviations.

    ``noise`` (m,) is standard normal, one number a parameter, in the order of the arrays, which
    ``perturbation_std`` has too where there is no batch normalisation.
    """
    epsilon = noise * perturbation_std(theta0.architecture, perturbation_scale)
    ends = np.cumsum([array.size for array in theta0.arrays.values()])
    parts = zip(theta0.arrays.items(), np.split(epsilon, ends[:-1]), strict=True)
    arrays = {name: (a + own.reshape(a.shape)).astype(np.float32) for (name, a), own in parts}
    return Theta0(theta0.architecture, arrays)


def _measure(appendix: studies.Appendix) -> dict[str, Any]:
    """One pre-training, looked at after some of its steps, on ``N_ROWS`` of its images."""
    X, seed = appendix.X, appendix.seed
    steps_a_pass = len(X) // studies.BATCH_SIZE
    steps = log_spaced_steps(steps_a_pass * appendix.network.epochs)
    # The rows of a pass come in an order of its own, and in portions up to each of the steps.
    ends = sorted({*steps, *range(steps_a_pass, max(steps), steps_a_pass)})
    initializer, learned = appendix.initializer(CHANGES), 0
    yardstick = X[shuffled_rows(len(X), "yardstick", seed=seed)[:N_ROWS]]

    def theta0_after(step: int) -> Theta0:
        """Theta0 after so many steps, which are not fewer than those of the call before."""
        nonlocal learned
        for end in [end for end in ends if learned < end <= step]:
            number, first = divmod(learned, steps_a_pass)
            order = shuffled_rows(len(X), "passes", 0, number, seed=seed)
            last = first + end - learned
            initializer.partial_fit(
                X[order[first * studies.BATCH_SIZE : last * studies.BATCH_SIZE]]
            )
            learned = end
        theta0: Theta0 = initializer.theta0_
        return theta0

    scorer = appendix.initializer(CHANGES | {"max_iter": 0}).fit(yardstick)

    def loss(theta0: Theta0) -> float:
        scorer.theta0_ = theta0
        return float(-scorer.score(yardstick))

    def measure(step: int) -> dict[str, Any]:
        theta0 = theta0_after(step) if step else appendix.fresh(CHANGES)
        m = sum(array.size for array in theta0.arrays.values())
        # The same at each step, and for each s the same up to their length.
        rng = np.random.default_rng(diagnostics_seed(seed=seed))
        noises = [rng.standard_normal(m, dtype=np.float32) for _ in range(N_DRAWS)]
        nearby = [
            [loss(perturbed(theta0, noise, math.sqrt(square))) for noise in noises]
            for square in SQUARED_SCALES
        ]
        return {"at_theta0": loss(theta0), "nearby": nearby}

    own = [fit_key(appendix.initializer(CHANGES), appendix.X_digest), seed]
    cells = []
    for step in (0, *steps):
        # A portion that ends before the step changes the order of rows.
        passed = [end for end in ends if end <= step]
        key = digest_of([*own, passed, SQUARED_SCALES, N_DRAWS, N_ROWS])
        name = f"L_iod near theta0 after {step} steps"
        cells.append((name, {"step": step}, key, partial(measure, step)))
    settings = {"changes": CHANGES, "squared_scales": SQUARED_SCALES, "draws": N_DRAWS}
    return appendix.measured("detachment_nearby", cells, rows_measured=N_ROWS, **settings)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    studies.add_appendix_options(parser)
    parser.set_defaults(n_perturbations=CHANGES["n_perturbations"])
    return run_command(parser, argv, studies.prepare_appendix, _measure, text_of("detachment"))


if __name__ == "__main__":
    raise SystemExit(main())
