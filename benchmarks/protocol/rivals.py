"""Rows beside the paper's: other ways to use the unlabelled images, or none.

They say what theta0 is for. It is a better start for a neural network; whether it is more than
another start, and how far it is from the best classifier for few labels, these rows show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.bench import Bench
from protocol.convnet_methods import CONVNET_METHODS, CONVNET_SCRATCH
from protocol.methods import METHODS, Contender, select_names
from protocol.rival_augmented import AUGMENTED, augmented_rivals
from protocol.rival_classifiers import CLASSIFIERS, rival_contenders
from protocol.rival_gradients import AUGMENTED_GRADIENTS, GRADIENTS, gradient_rivals
from protocol.rival_networks import NETWORKS, network_rivals
from protocol.scratch import SCRATCH

__all__ = ["ALL_RIVALS", "RIVALS", "Rivals", "rival_contenders", "scratch_of", "select_rivals"]

RIVALS = (*CLASSIFIERS, *NETWORKS)
"""Every rival that knows the images as they are, in the order of the tables."""

ALL_RIVALS = (*RIVALS, *GRADIENTS, *AUGMENTED, AUGMENTED_GRADIENTS)
"""And those that get of them what coherence may get: oriented gradients, changed copies."""


def select_rivals(
    patterns: Sequence[str] | None, *, augmented: bool = False, gradients: bool = False
) -> list[str]:
    """The rivals that ``--rivals`` asks for.

    Parameters
    ----------
    patterns : sequence of str or None
        Names or patterns, with or without ``rival/``: ``lsuv``, ``'*-svm'``, ``'*'``. Empty,
        the option alone: those without a network, which take seconds, and those of GRADIENTS
        and AUGMENTED where they are valid. None, where it is not given: none.
    augmented, gradients : bool, default=False
        Whether those of AUGMENTED, and of GRADIENTS, are valid; with both there is one more.

    Raises
    ------
    ValueError
        If a pattern matches no rival; the message lists them.
    """
    if patterns is None:
        return []
    more = [*(GRADIENTS if gradients else ()), *(AUGMENTED if augmented else ())]
    if gradients and augmented:
        more.append(AUGMENTED_GRADIENTS)
    if not patterns:
        return [*CLASSIFIERS, *more]
    full = [p if p.startswith("rival/") else f"rival/{p}" for p in patterns]
    return select_names(full, (*RIVALS, *more), what="rival")


def scratch_of(method: str) -> str | None:
    """The network from scratch that a row is paired with; None where it is no network.

    Scratch itself is its own.
    """
    if method in METHODS:
        return METHODS[method].scratch
    if method in CONVNET_METHODS:
        return CONVNET_SCRATCH
    return SCRATCH.name if method in {*NETWORKS, "rival/augmented-scratch"} else None


class Rivals:
    """The rivals of a command, run by run; what all runs share is made once.

    Parameters
    ----------
    names : sequence of str
        From :func:`select_rivals`.
    bench : Bench
        Data, network and options.
    n_jobs : int
        Jobs for the search of neighbours.
    """

    def __init__(self, names: Sequence[str], bench: Bench, *, n_jobs: int = 1) -> None:
        self.networks = [name for name in names if name in NETWORKS]
        self.bench = bench
        classifiers = [name for name in names if name in CLASSIFIERS]
        if classifiers:
            bench.say("features and neighbours for the rivals")
        self.classifiers = rival_contenders(
            bench.X,
            len(bench.X_unlabelled),
            seed=bench.options.seed,
            n_jobs=n_jobs,
            names=classifiers,
        )
        self.classifiers += gradient_rivals(names, bench, n_jobs=n_jobs)
        self.classifiers += augmented_rivals(names, bench)

    def of_run(self, run: int) -> tuple[list[Contender], list[dict[str, Any]]]:
        """The contenders of a run, and a record of each start that was learned for it."""
        contenders, records = network_rivals(self.networks, self.bench, run)
        return self.classifiers + contenders, records
