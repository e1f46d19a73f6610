"""Uniformity, L_uni: predictions for each input spread over the simplex."""

from __future__ import annotations

import torch

from .interval import closed_form_mmd, interval_median, interval_mmd, interval_serves
from .mmd import median_bandwidth, mmd

__all__ = ["uniformity"]


def uniformity(P: torch.Tensor, U: torch.Tensor, *, closed_form: bool = False) -> torch.Tensor:
    r"""L_uni: the mean over inputs of the MMD between predictions and the uniform law.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex, such as normalised Exp(1) draws.
    closed_form : bool, default=False
        Whether to take the expectations over `U` exactly; for two classes. `U` still enters
        the median bandwidth.

    Returns
    -------
    Tensor, scalar
        Eq. (uniformity_loss) of the paper; differentiable by `P`.

    Raises
    ------
    ValueError
        If the closed form is asked for more than two classes.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import uniformity
    >>> draws = torch.rand(2, 512, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> first, second = torch.cat([draws, 1 - draws], dim=-1)
    >>> same_law = uniformity(first, second[:, 0])
    >>> one_point = uniformity(torch.full((512, 1, 2), 0.5), second[:, 0])
    >>> bool(abs(same_law) < 0.05 < one_point)
    True
    """
    if P.shape[-1] == 2:
        # The gradient with respect to the first class carries that of the second.
        p, u = P[..., 0].mT, U[:, 0].contiguous()
        gamma = interval_median(p, u)
        if interval_serves(gamma, p.shape[1], len(u)):
            return interval_mmd(p, u, gamma, closed_form=closed_form).mean()
        if closed_form:
            return closed_form_mmd(p, gamma).mean()
    elif closed_form:
        raise ValueError(f"the closed form is known for two classes, got {P.shape[-1]}")
    else:
        gamma = median_bandwidth(P.transpose(0, 1), U)
    return mmd(P.transpose(0, 1), U, gamma).mean()
