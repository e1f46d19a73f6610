"""Claim: without its second and third term the paper's loss ends in networks that ignore inputs.

The appendix's tables "effect_loss_sd" and "effect_loss_iod" and its figure "degenerate_ex". Theta0
is learned with (lambda, xi) in (0, 0), (0.4, 0), (0, 1) and (0.4, 1), the weights of the terms
against degenerate softmax and against input-output detachment. On 128 random mini-batches of 32
training images: how many of 256 perturbed networks use fewer than all classes, and how many units
of each hidden layer are 0 for all rows, the fresh weights first. For (0, 0) and (0.4, 1) also the
densities of the probability of class 0: over 1,024 perturbations at four images, which are to be
uniform, and over 1,024 images for four networks, which collapse where these ignore their input.

Run it (under 30 minutes a setting on two cores, in portions with Ctrl-C where it must be)::

    python benchmarks/degeneracies.py
    python benchmarks/degeneracies.py --settings 0.4,1 --init he --runs 4

What was done is kept; (0.4, 1) is not learned again where ``mnist_tasks.py --preset paper`` kept
``xavier/fcn/ours``, or ``he/fcn/ours``, in the same folder.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

from protocol import command, studies
from protocol.store import commit
from reporting.tables import publish

# The paper's (lambda, xi), and those whose densities are drawn.
SETTINGS = ((0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0))
WITH_DENSITIES = ((0.0, 0.0), (0.4, 1.0))
NAMES = ("degeneracy_weight", "detachment_weight")


def weights(text: str) -> tuple[float, float]:
    """Two numbers of 0 or more; argparse says what is none."""
    weight, detachment = map(float, text.split(","))
    if not (0.0 <= weight < math.inf and 0.0 <= detachment < math.inf):
        raise ValueError
    return weight, detachment


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    which: dict[str, Any] = {"nargs": "+", "type": weights, "metavar": "LAMBDA,XI"}
    default = "which to measure, as 0.4,1; default: the paper's 0,0 0.4,0 0,1 0.4,1"
    parser.add_argument("--settings", default=SETTINGS, help=default, **which)
    studies.add_objective_options(parser, n_perturbations=256)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        appendix = studies.prepare_appendix(options)
    log, keys = appendix.log("degeneracies"), []
    with command.resumable(parser):
        # None stands for the fresh weights.
        for run, setting in product(range(options.runs), dict.fromkeys((None, *options.settings))):
            head = dict(zip(NAMES, setting or (None, None), strict=True))
            changes = {"max_iter": 0} if setting is None else head
            keys.append(appendix.key(changes, run))
            if keys[-1] in log.records:
                continue
            record = {"key": keys[-1], **head, "run": run}
            if setting is None:
                appendix.say(f"run {run}: fresh weights")
                theta0 = appendix.fresh(run=run)
            else:
                appendix.say(f"run {run}: theta0 with lambda = {setting[0]:g}, xi = {setting[1]:g}")
                learned = appendix.learned(changes, run)
                theta0, record["theta0"] = learned.initializer.theta0_, learned.record()
            record |= studies.measure_ratios(theta0, appendix.X, seed=options.seed)
            if run == 0 and setting in (None, *WITH_DENSITIES):
                densities = studies.measure_densities(theta0, appendix.X, seed=options.seed)
                record["densities"] = densities
            log.append(record | {"commit": commit()})
    results = appendix.results(log, keys, networks_a_ratio=studies.N_PERTURBATIONS)
    publish(parser, options, results, ("degeneracies", "densities"))


if __name__ == "__main__":
    main()
