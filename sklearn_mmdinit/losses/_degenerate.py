"""The paper's two terms against degenerate solutions.

L_sd: each network uses all classes. L_iod: predictions depend on the input.
"""

from __future__ import annotations

import math

import torch

from .._base.environment import full_precision
from ._shared import checked_predictions

# Smallest squared distance under a root, whose slope at 0 is infinite.
_TINY = 1e-12


@full_precision()
def degeneracy(P: torch.Tensor) -> torch.Tensor:
    r"""Penalty for networks that do not use all classes (L_sd).

    For each network: the mean distance from its predictions f to the farthest one-hot vector
    :math:`v_i`, minus :math:`1/\sqrt d`, but not below 0,

    :math:`E_\epsilon [\max\{\max_i E_x \|v_i - f_\epsilon(x)\|, 1/\sqrt d\} - 1/\sqrt d]`.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions; the mean over inputs is taken for each network.

    Returns
    -------
    Tensor, scalar
        The paper's underclass loss. It is smallest where all predictions are 1/d: 0 for two
        classes, sqrt(1 - 1/d) - 1/sqrt(d) for more, which is 0.632 for ten. Predictions drawn
        uniformly from the simplex give 0.67 for ten classes. A network that always predicts one
        class gives sqrt(2) - 1/sqrt(d), which is 1.098 for ten.

    Raises
    ------
    ValueError
        If `P` has another shape, is empty, or holds no probabilities (checked on a CPU only).

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import degeneracy
    >>> one_class_alone = torch.tensor([1.0, 0.0]).expand(8, 32, 2)
    >>> round(float(degeneracy(one_class_alone)), 3)  # sqrt(2) - 1 / sqrt(2)
    0.707
    """
    P = checked_predictions(P)
    threshold = 1.0 / math.sqrt(P.shape[-1])
    squared = 1.0 - 2.0 * P + P.square().sum(-1, keepdim=True)
    distances = squared.clamp(min=_TINY).sqrt().mean(dim=1)
    return distances.amax(dim=-1).clamp(min=threshold).mean() - threshold


def detachment(norms: torch.Tensor) -> torch.Tensor:
    r"""Penalty for predictions that do not depend on the input (L_iod).

    The Jacobian of a logit i with respect to a layer l should have norm 1. Each logit is penalised
    for the layer whose norm is farthest from 1:

    :math:`E_x [\frac 1 d \sum_i \max_l (1 - \|J_i^{(l:L)}(x_l)\|)^2]`.

    Parameters
    ----------
    norms : Tensor of shape (B, d, L)
        Norms of the rows of the Jacobians of the logits at theta0, with respect to the input and
        to each hidden layer's pre-activation.

    Returns
    -------
    Tensor, scalar
        The paper's third term; 0 where all norms are 1.

    Raises
    ------
    ValueError
        If `norms` has another number of axes, or is empty.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import detachment
    >>> float(detachment(torch.tensor([[[1.0, 3.0], [1.0, 1.0]]])))
    2.0
    """
    if norms.ndim != 3 or not norms.numel():
        shape = tuple(norms.shape)
        raise ValueError(f"norms must be of shape (n_inputs, n_classes, n_layers), got {shape}")
    return (1.0 - norms).square().amax(dim=-1).mean()
