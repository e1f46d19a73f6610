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
from typing import Any

from protocol import studies
from protocol.command import command_parser, run_command
from reporting.tables import text_of

# The paper's (lambda, xi), and those whose densities are drawn.
SETTINGS = ((0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0))
WITH_DENSITIES = ((0.0, 0.0), (0.4, 1.0))

Setting = tuple[float, float]


def weights(text: str) -> Setting:
    """Two numbers of 0 or more; argparse says what is none."""
    weight, detachment = map(float, text.split(","))
    if not (0.0 <= weight < math.inf and 0.0 <= detachment < math.inf):
        raise ValueError
    return weight, detachment


def _cell(appendix: studies.Appendix, setting: Setting | None, run: int) -> studies.Cell:
    """Of theta0 with a lambda and a xi; None: of the fresh weights."""
    names = ("degeneracy_weight", "detachment_weight")
    if setting is None:
        name, head = "fresh weights", dict.fromkeys(names)
        changes: dict[str, Any] = {"max_iter": 0}
    else:
        name = f"theta0 with lambda = {setting[0]:g}, xi = {setting[1]:g}"
        head = changes = dict(zip(names, setting, strict=True))

    def measure() -> dict[str, Any]:
        learned = None if setting is None else appendix.learned(changes, run)
        theta0 = appendix.fresh(run=run) if learned is None else learned.initializer.theta0_
        found = studies.measure_ratios(theta0, appendix.X, seed=appendix.seed)
        if run == 0 and setting in (None, *WITH_DENSITIES):
            found["densities"] = studies.measure_densities(theta0, appendix.X, seed=appendix.seed)
        return found if learned is None else found | {"theta0": learned.record()}

    key, head = appendix.key(changes, run), {**head, "run": run}
    return f"run {run}: {name}", head, key, measure


def _measure(appendix: studies.Appendix) -> dict[str, Any]:
    settings = dict.fromkeys((None, *appendix.options.settings))
    runs = range(appendix.options.runs)
    cells = [_cell(appendix, own, run) for run in runs for own in settings]
    return appendix.measured("degeneracies", cells, networks_a_ratio=studies.N_PERTURBATIONS)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    which: dict[str, Any] = {"nargs": "+", "type": weights, "metavar": "LAMBDA,XI"}
    default = "which to measure, as 0.4,1; default: the paper's 0,0 0.4,0 0,1 0.4,1"
    parser.add_argument("--settings", default=SETTINGS, help=default, **which)
    studies.add_objective_options(parser, n_perturbations=256)
    text = text_of("degeneracies", "densities")
    return run_command(parser, argv, studies.prepare_appendix, _measure, text)


if __name__ == "__main__":
    raise SystemExit(main())
