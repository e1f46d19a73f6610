"""What parameters of "auto" stand for: the paper's values, or those measured with coherence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._coherence import coherence_of
from ._compute import native_precision, permutation, torch_device
from ._network import Theta0
from ._pretraining import Blueprint, gain_of_first_step, is_auto

__all__ = ["auto_gain", "auto_values", "rows_of_paper"]

PAPER: dict[str, Any] = {
    "n_perturbations": 256,
    "reference": "sampled",
    "learning_rate_init": 2e-4,
    "learning_rate": "constant",
    "max_iter": 5,
    "keep": "best",
}

# Measured by benchmarks/coherence.py, on other tasks than those that are reported.
COHERENT: dict[str, Any] = {
    "n_perturbations": 32,
    "learning_rate_init": 4e-3,
    "learning_rate": "cosine",
    "keep": "last",
}
N_STEPS = 3000

# How far the first step of fine-tuning is to move a logit, in nats.
FIRST_STEP = 0.75

# Rows over which a gain is chosen.
_GAIN_ROWS = 2048


def auto_values(estimator: Any, n_rows: int | None, n_classes: int | None = None) -> dict[str, Any]:
    """Values of the parameters that are "auto"; the gain follows from theta0 later.

    Parameters
    ----------
    estimator : MMDInitializer
        Whose parameters.
    n_rows : int or None
        Rows there are; None where they are not known yet, and a value may be provisional.
    n_classes : int, default=None
        Classes there are. None: those of a perceptron; of a module they are not known, and the
        reference, which depends on them, stays "auto".

    Returns
    -------
    dict
        By name; without those that are given.
    """
    coherence = coherence_of(estimator.coherence)
    values = dict(PAPER)
    if coherence is not None:
        size = coherence.batch_size
        steps_a_pass = 1 if n_rows is None else n_rows // min(size, n_rows)
        values |= COHERENT | {"max_iter": math.ceil(N_STEPS / steps_a_pass)}
        if n_classes is None and estimator.module is None:
            n_classes = estimator.n_classes
        if n_classes is None:
            del values["reference"]
        elif n_classes == 2:
            values["reference"] = "closed_form"
    if is_auto(estimator.precision):
        # Of a module the products are its own.
        native = native_precision(torch_device(estimator.device))
        values["precision"] = native if estimator.module is None else "float32"
    return {name: value for name, value in values.items() if is_auto(getattr(estimator, name))}


def auto_gain(
    estimator: Any, theta0: Theta0, X: np.ndarray, seed: int, blueprint: Blueprint
) -> tuple[float, ...]:
    """Factor of each hidden layer's weights, those of "auto" from rows of X.

    Parameters
    ----------
    estimator : MMDInitializer
        Whose parameter ``gain``.
    theta0 : Theta0
        As pre-training left it.
    X : ndarray of shape (n, ...)
        Rows that it was learned from.
    seed : int
        Of the choice of rows.
    blueprint : Blueprint
        Of the network.

    Returns
    -------
    tuple of float
        One a hidden layer; none for a module of which it is not known what a gain does.
    """
    n_hidden = max(len(theta0.architecture.scaled_layers) - 1, 0)
    if not is_auto(estimator.gain):
        factors = np.asarray(estimator.gain, dtype=float)
        return tuple(np.broadcast_to(factors, n_hidden).tolist()) if n_hidden else ()
    if coherence_of(estimator.coherence) is None:
        return (1.0,) * n_hidden
    rows = np.sort(permutation(seed, 0, len(X))[:_GAIN_ROWS])
    return gain_of_first_step(theta0, blueprint, X[rows], step=FIRST_STEP)


def rows_of_paper(estimator: Any, n_rows: int) -> int:
    """Rows of a step that go through the paper's terms, of so many that there are."""
    coherence = coherence_of(estimator.coherence)
    size = n_rows if coherence is None else min(coherence.batch_size, n_rows)
    return min(int(estimator.batch_size), size)
