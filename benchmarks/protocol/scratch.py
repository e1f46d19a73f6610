"""The network from scratch, and the same network with something changed.

What is compared with scratch keeps everything else: the fine-tuning, the order of the rows, and
the fresh weights wherever it brings none of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from protocol.methods import METHODS, Contender, NetworkSettings, network_contender

__all__ = ["SCRATCH", "scratch_contender", "variant"]

SCRATCH = METHODS["xavier/fcn/scratch"]


def scratch_contender(X: np.ndarray, settings: NetworkSettings) -> Contender:
    """The paper's network from fresh Xavier weights."""
    return network_contender(SCRATCH, settings, X=X, initializer=None, theta0_digest=None)


def variant(
    scratch: Contender,
    name: str,
    change: Callable[[Pipeline, int], Pipeline],
    identity: dict[str, Any],
) -> Contender:
    """A contender that is scratch but for one thing.

    Parameters
    ----------
    scratch : Contender
        From :func:`scratch_contender`.
    name : str
        Its row in the tables.
    change : callable
        ``change(pipeline, random_state)`` gives the pipeline that is evaluated. The pipeline it
        is handed is its own to change.
    identity : dict
        What stands for the change in the identity of a score.
    """

    def make(random_state: int) -> Pipeline:
        return change(scratch.make(random_state), random_state)

    return Contender(name, scratch.X, make, scratch.identity | {"change": identity})
