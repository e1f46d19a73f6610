"""What the paper's appendix measures of a theta0, with its numbers of mini-batches and networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from protocol.pretrained import theta0_digest
from protocol.tasks import diagnostics_seed, shuffled_rows
from sklearn_mmdinit import Theta0
from sklearn_mmdinit.diagnostics import (
    dead_neuron_ratio,
    degenerate_softmax_ratio,
    prediction_samples,
)

__all__ = [
    "BATCH_SIZE",
    "N_BATCHES",
    "N_PERTURBATIONS",
    "PERTURBATION_SCALE",
    "measure_densities",
    "measure_ratios",
    "percent",
]

N_BATCHES = 128
BATCH_SIZE = 32
N_PERTURBATIONS = 256
PERTURBATION_SCALE = math.sqrt(0.5)

# Draws of a density, and how many densities there are of each kind.
N_DRAWS = 1024
N_DENSITIES = 4


def percent(ratios: np.ndarray) -> dict[str, float | None]:
    """Mean and std over mini-batches; the std of a single one is None."""
    std = 100.0 * float(ratios.std(ddof=1)) if len(ratios) > 1 else None
    return {"mean": 100.0 * float(ratios.mean()), "std": std}


def measure_ratios(
    theta0: Theta0,
    X: np.ndarray,
    *,
    seed: int,
    n_batches: int = N_BATCHES,
    perturbation_scale: float = PERTURBATION_SCALE,
) -> dict[str, Any]:
    """Degenerate softmax and fully dead neurons, in percent.

    Parameters
    ----------
    theta0 : Theta0
        What is looked at.
    X : ndarray of shape (n, n_features)
        Rows to draw mini-batches of 32 from.
    seed : int
        Mini-batches and perturbations follow from it: they are the same for every theta0.
    n_batches : int, default=128
        Mini-batches.
    perturbation_scale : float, default=sqrt(0.5)
        The paper's s.
    """
    common = {
        "n_batches": n_batches,
        "batch_size": BATCH_SIZE,
        "random_state": diagnostics_seed(seed=seed),
    }
    degenerate = degenerate_softmax_ratio(
        theta0,
        X,
        perturbation_scale=perturbation_scale,
        n_perturbations=N_PERTURBATIONS,
        **common,
    )
    dead = dead_neuron_ratio(theta0, X, **common)
    return {
        "digest": theta0_digest(theta0),
        "degenerate_softmax_percent": percent(degenerate),
        "dead_neurons_percent": [percent(layer) for layer in dead.T],
    }


def measure_densities(theta0: Theta0, X: np.ndarray, *, seed: int) -> dict[str, Any]:
    """Samples of the probability of class 0 around theta0, for the paper's "degenerate_ex".

    Parameters
    ----------
    theta0 : Theta0
        What is perturbed, with the paper's s.
    X : ndarray of shape (n, n_features)
        Rows to draw inputs from.
    seed : int
        Inputs and perturbations follow from it.

    Returns
    -------
    dict
        ``over_perturbations``: 1,024 values for each of four inputs; ``over_inputs``: a value for
        each of 1,024 inputs, or as many as there are, for each of four perturbed networks.
    """
    rows = shuffled_rows(len(X), "diagnostics", 1, seed=seed)[:N_DRAWS]
    common = {
        "perturbation_scale": PERTURBATION_SCALE,
        "random_state": diagnostics_seed(seed=seed),
    }
    inputs = X[rows[:N_DENSITIES]]
    at_inputs = prediction_samples(theta0, inputs, n_perturbations=N_DRAWS, **common)
    of_networks = prediction_samples(theta0, X[rows], n_perturbations=N_DENSITIES, **common)
    return {
        "over_perturbations": _rounded(at_inputs[:, :, 0].T),
        "over_inputs": _rounded(of_networks[:, :, 0]),
    }


def _rounded(probabilities: np.ndarray) -> list[list[float]]:
    """Far below what a histogram can show, and a third of the file."""
    return [[round(value, 4) for value in row] for row in probabilities.tolist()]
