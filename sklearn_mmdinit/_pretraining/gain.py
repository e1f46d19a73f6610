"""A gain that needs no labels: how far the first step of fine-tuning moves the logits."""

from __future__ import annotations

import numpy as np
import torch

from .._network import Theta0, has_gain
from .blueprint import Blueprint

__all__ = ["gain_of_first_step"]


def gain_of_first_step(
    theta0: Theta0,
    blueprint: Blueprint,
    X: np.ndarray,
    *,
    step: float,
    learning_rate: float = 1e-3,
) -> tuple[float, ...]:
    r"""Factors of the hidden weights by which a first step of Adam moves a logit far enough.

    The first step moves each weight of the last layer by the learning rate :math:`\eta`, up or
    down, and so a logit at x by :math:`\eta \|h(x)\|_1` at most. The factors, the same for all
    hidden layers, make the mean of this the given step.

    Parameters
    ----------
    theta0 : Theta0
        As pre-training left it.
    blueprint : Blueprint
        Of its network.
    X : ndarray of shape (n, ...)
        Rows over which the mean is taken.
    step : float
        How far a logit is to move, in nats.
    learning_rate : float, default=1e-3
        Of the fine-tuning to come.

    Returns
    -------
    tuple of float
        One a hidden layer; all 1 where a gain would change the function or has nothing to act
        on: with other activations, with batch normalisation, without hidden layers, or where
        all activations are 0.
    """
    n_hidden = max(len(theta0.architecture.scaled_layers) - 1, 0)
    ones = (1.0,) * n_hidden
    if n_hidden == 0 or not has_gain(theta0.architecture):
        return ones
    H = torch.from_numpy(blueprint.hidden(theta0, X, "cpu"))
    moved = learning_rate * float(H.abs().sum(dim=1).mean())
    if moved == 0.0:
        return ones
    return (float((step / moved) ** (1.0 / n_hidden)),) * n_hidden
