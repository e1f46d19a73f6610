"""What parameters of "auto" stand for: the paper's values, or those measured with coherence."""

from __future__ import annotations

import math
from typing import Any

from ._coherence import coherence_of
from ._pretraining import is_auto

__all__ = ["FIRST_STEP", "auto_values"]

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


def auto_values(estimator: Any, n_rows: int | None) -> dict[str, Any]:
    """Values of the parameters that are "auto"; the gain follows from theta0 later.

    Parameters
    ----------
    estimator : MMDInitializer
        Whose parameters.
    n_rows : int or None
        Rows there are; None where they are not known yet, and a value may be provisional.

    Returns
    -------
    dict
        By name; without those that are given.
    """
    coherence = coherence_of(estimator.coherence, n_rows)
    values = dict(PAPER)
    if coherence is not None:
        size = coherence.batch_size
        steps_a_pass = 1 if n_rows is None else n_rows // min(size, n_rows)
        values |= COHERENT | {"max_iter": math.ceil(N_STEPS / steps_a_pass)}
        if estimator.n_classes == 2:
            values["reference"] = "closed_form"
    return {name: value for name, value in values.items() if is_auto(getattr(estimator, name))}
