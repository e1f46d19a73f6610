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

from protocol import studies
from reporting.tables import publish

NAMES = ("degeneracy_weight", "detachment_weight")
PAIRS = ((0.0, 0.0), (0.4, 0.0), (0.0, 1.0), (0.4, 1.0))
SETTINGS = [dict(zip(NAMES, pair, strict=True)) for pair in PAIRS]


def main(argv: Sequence[str] | None = None) -> None:
    cells: list[studies.Cell] = [(dict.fromkeys(NAMES), studies.FRESH)]
    cells += [(changes, changes) for changes in SETTINGS]
    publish(*studies.run_appendix(__file__, __doc__, argv, cells, K=256), ["degeneracies"])


if __name__ == "__main__":
    main()
