"""Degeneracy, L_sd: each network uses all classes."""

from __future__ import annotations

import math

import torch

from .._base.environment import full_precision
from ._shared import checked_predictions

# Smallest squared distance under a root, whose slope at 0 is infinite.
_TINY = 1e-12


@full_precision()
def degeneracy(P: torch.Tensor) -> torch.Tensor:
    r"""L_sd: mean distance of each network's predictions to the vertex that is farthest from them.

    :math:`E_\epsilon [\max\{\max_i E_x \|v_i - f_\epsilon(x)\|, 1/\sqrt d\} - 1/\sqrt d]`.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions; the mean over inputs is taken for each network.

    Returns
    -------
    Tensor, scalar
        Eq. (underclass_loss) of the paper. It is smallest where all predictions are 1/d: 0 for two
        classes, sqrt(1 - 1/d) - 1/sqrt(d) for more, which is 0.632 for ten. Predictions drawn
        uniformly from the simplex give 0.67 for ten classes. A network that always predicts one
        class gives sqrt(2) - 1/sqrt(d), which is 1.098 for ten.

    Raises
    ------
    ValueError
        If `P` has another shape, is empty or, on a CPU, holds no probabilities.

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
