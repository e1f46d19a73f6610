"""Claim: without its second and third term the paper's loss ends in networks that ignore inputs.

The appendix's tables "effect_loss_sd" and "effect_loss_iod", for (lambda, xi), the weights of the
terms. On 128 random mini-batches of 32 training images: how many of 256 perturbed networks use
fewer than all classes, and how many units of each hidden layer are 0 for all rows.

Run it (under 30 minutes a setting on two cores, in portions with Ctrl-C where it must be)::

    python benchmarks/degeneracies.py

What was done is kept; (0.4, 1) is not learned again where ``mnist_tasks.py --preset paper`` kept
``xavier/fcn/ours`` in the same folder.
"""

from collections.abc import Sequence
from typing import Any

from protocol import command, studies
from reporting.tables import publish

NAMES = ("degeneracy_weight", "detachment_weight")
PAIRS = ((0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0))
SETTINGS = [dict(zip(NAMES, pair, strict=True)) for pair in PAIRS]


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    studies.add_appendix_options(parser, n_perturbations=256)
    options = parser.parse_args(argv)
    with command.refusing(parser):
        appendix = studies.prepare_appendix(options)
    cells: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    for run in range(options.runs):
        cells.append((run, dict.fromkeys(NAMES), studies.FRESH))
        cells += [(run, changes, changes) for changes in SETTINGS]
    with command.resumable(parser):
        results = appendix.measure("degeneracies", cells)
    publish(parser, options, results, ["degeneracies"])


if __name__ == "__main__":
    main()
