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
from typing import Any

import numpy as np

from protocol import command, studies
from protocol.store import commit, digest_of
from protocol.tasks import diagnostics_seed, shuffled_rows
from protocol.theta0s import fit_key
from reporting.tables import publish
from sklearn_mmdinit import Theta0

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

    ``noise`` (m,) is standard normal, one number a parameter, in the order of the arrays. The last
    axis of a weight has n_in values, that of a bias n_out.
    """
    ends = np.cumsum([array.size for array in theta0.arrays.values()])
    arrays = {}
    for (name, array), part in zip(theta0.arrays.items(), np.split(noise, ends[:-1]), strict=True):
        epsilon = part.reshape(array.shape) * (perturbation_scale / np.sqrt(array.shape[-1]))
        arrays[name] = (array + epsilon).astype(np.float32)
    return Theta0(theta0.architecture, arrays)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    studies.add_appendix_options(parser)
    parser.set_defaults(n_perturbations=CHANGES["n_perturbations"])
    options = parser.parse_args(argv)
    with command.refusing(parser):
        appendix = studies.prepare_appendix(options)
    X, seed = appendix.X, options.seed
    steps_an_epoch = len(X) // studies.BATCH_SIZE
    steps = log_spaced_steps(steps_an_epoch * appendix.network.epochs)
    # Each epoch has its order of rows, and is learned in portions up to each of the steps.
    ends = sorted({*steps, *range(steps_an_epoch, max(steps), steps_an_epoch)})
    initializer, learned = appendix.initializer(CHANGES), 0
    yardstick = X[shuffled_rows(len(X), "yardstick", seed=seed)[:N_ROWS]]
    scorer = appendix.initializer(CHANGES | {"max_iter": 0}).fit(yardstick)

    def loss(theta0: Theta0) -> float:
        scorer.theta0_ = theta0
        return float(-scorer.score(yardstick))

    log, keys = appendix.log("detachment_nearby"), []
    identity = [fit_key(appendix.initializer(CHANGES), appendix.X_digest), seed]
    with command.resumable(parser):
        for step in (0, *steps):
            # A portion that ends before the step changes the order of rows.
            passed = [end for end in ends if end <= step]
            keys.append(digest_of([*identity, passed, SQUARED_SCALES, N_DRAWS, N_ROWS]))
            if keys[-1] in log.records:
                continue
            appendix.say(f"L_iod near theta0 after {step} steps")
            for end in [end for end in passed if end > learned]:
                epoch, first = divmod(learned, steps_an_epoch)
                order = shuffled_rows(len(X), "passes", 0, epoch, seed=seed)
                last, learned = first + end - learned, end
                rows = order[first * studies.BATCH_SIZE : last * studies.BATCH_SIZE]
                initializer.partial_fit(X[rows])
            theta0 = initializer.theta0_ if step else appendix.fresh(CHANGES)
            # The same noise at each step, and for each s the same up to its length.
            m = sum(array.size for array in theta0.arrays.values())
            rng = np.random.default_rng(diagnostics_seed(seed=seed))
            noises = [rng.standard_normal(m, dtype=np.float32) for _ in range(N_DRAWS)]
            nearby = [
                [loss(perturbed(theta0, noise, math.sqrt(square))) for noise in noises]
                for square in SQUARED_SCALES
            ]
            record = {"key": keys[-1], "step": step, "at_theta0": loss(theta0), "nearby": nearby}
            log.append(record | {"commit": commit()})
    settings = {"changes": CHANGES, "squared_scales": SQUARED_SCALES, "draws": N_DRAWS}
    results = appendix.results(log, keys, rows_measured=N_ROWS, **settings)
    publish(parser, options, results, ["detachment"])


if __name__ == "__main__":
    main()
