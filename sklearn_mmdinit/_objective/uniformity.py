"""Uniformity, L_uni: predictions for each input spread over the simplex."""

from __future__ import annotations

import torch

from .mmd import median_bandwidth, mmd
from .mmd_interval import (
    ENOUGH_REFERENCES,
    SMALLEST_BANDWIDTH,
    closed_form_mmd,
    interval_median_bandwidth,
    interval_mmd,
)

__all__ = ["REFERENCES", "uniformity"]

REFERENCES = ("sampled", "closed_form")


def uniformity(
    P: torch.Tensor,
    U: torch.Tensor,
    estimator: str = "unbiased",
    reference: str = "sampled",
) -> torch.Tensor:
    r"""L_uni: the mean over inputs of the MMD between predictions and the uniform law.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex.
    estimator : {"unbiased", "biased"}, default="unbiased"
        Within-set means without or with the pairs of a point with itself.
    reference : {"sampled", "closed_form"}, default="sampled"
        ``"closed_form"`` takes the expectations over `U` exactly; two classes only. `U`
        still enters the median bandwidth.

    Returns
    -------
    Tensor, scalar
        Eq. (uniformity_loss) of the paper.
    """
    if P.shape[-1] == 2:
        # The gradient with respect to the first class carries that of the second.
        p, u = P[..., 0].mT, U[:, 0].contiguous()
        gamma = interval_median_bandwidth(p, u)
        if _interval_serves(gamma, p.shape[1], len(u)):
            return interval_mmd(p, u, gamma, estimator, reference).mean()
        if reference == "closed_form":
            return closed_form_mmd(p, gamma, estimator).mean()
    else:
        gamma = median_bandwidth(P.transpose(0, 1), U)
    return mmd(P.transpose(0, 1), U, gamma, estimator).mean()


def _interval_serves(gamma: torch.Tensor, n_p: int, n_u: int) -> bool:
    """Whether the bandwidths are large enough for the form on the interval."""
    if gamma.device.type == "cpu":
        return float(gamma.min()) >= SMALLEST_BANDWIDTH
    # To look would be to wait for the device.
    return n_u >= max(n_p, ENOUGH_REFERENCES)
