r"""The law of a perturbation.

A perturbed network adds :math:`\epsilon \sim N(0, \Sigma)` to theta0, with standard
deviation :math:`s / \sqrt{n_{in}}` for a weight and :math:`s / \sqrt{n_{out}}` for a bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Perturbation", "bias_std", "weight_std"]


@dataclass(frozen=True)
class Perturbation:
    """How networks around theta0 are to be drawn.

    Parameters
    ----------
    n_networks : int
        K, how many.
    scale : float
        The paper's s.
    sampler : {"auto", "direct", "gram"}, default="auto"
        All have the same law; "auto" takes the cheaper one for each layer.
    precision : {"float32", "bfloat16"}, default="float32"
        What inputs and weights at theta0 are rounded to where copies of a perceptron multiply
        them; what epsilon adds is not rounded.
    """

    n_networks: int
    scale: float
    sampler: str = "auto"
    precision: str = "float32"


def weight_std(n_in: int, scale: float) -> float:
    """Standard deviation of the perturbation of one weight, s / sqrt(n_in)."""
    return scale / math.sqrt(n_in)


def bias_std(n_out: int, scale: float) -> float:
    """Standard deviation of the perturbation of one bias, s / sqrt(n_out)."""
    return scale / math.sqrt(n_out)
