r"""Uniformity, L_uni: predictions for each input spread over the simplex.

The maximum mean discrepancy between the K predictions for an input and the uniform law,

.. math:: MMD = E k(p, p') - 2 E k(p, u) + E k(u, u'),
          \qquad k(a, b) = \sum_{i=-4}^{4} \exp\frac{-\|a - b\|^2}{2 (2^i \gamma)^2},

with the median of all pairwise distances as :math:`\gamma`, for each input. The gradient takes it
as a constant. Means within a set leave out the pairs of a point with itself (a U-statistic), so
that 0 means "uniform".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch

from .._base.environment import full_precision
from .._base.threads import run_on_threads
from ._interval import (
    FEW_POINTS,
    closed_form_mmd,
    grid_is_exact,
    interval_median,
    interval_mmd,
)
from ._shared import (
    MIN_BANDWIDTH,
    PAIRS_AT_ONCE,
    Piece,
    checked_predictions,
    combine_means,
    kernel,
    kernel_and_slope,
    with_gradient,
)

# Mode of torch.cdist that is also accurate for small distances.
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"
# From this number of classes on, cdist by differences takes many times as long as a product in
# float64.
_MANY_CLASSES = 64


@full_precision()
def uniformity(P: torch.Tensor, U: torch.Tensor, *, closed_form: bool = False) -> torch.Tensor:
    r"""L_uni: the mean over inputs of the MMD between predictions and the uniform law.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex, such as normalised Exp(1) draws.
    closed_form : bool, default=False
        Whether to compute expectations over the uniform law exactly, not from `U`; only for two
        classes. The median bandwidth still depends on `U`.

    Returns
    -------
    Tensor, scalar
        Eq. (uniformity_loss) of the paper, float32 or float64. It is differentiable with
        respect to `P` any number of times. Second and higher derivatives keep all pairs in memory.

    Raises
    ------
    ValueError
        If `P` or `U` has another shape, if `P` on a CPU holds no probabilities, or if the closed
        form is asked for more than two classes.

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
    P = checked_predictions(P)
    if U.ndim != 2 or U.shape[1] != P.shape[-1]:
        valid = f"(n_samples, {P.shape[-1]}), the classes of P"
        raise ValueError(f"U must be of shape {valid}, got {tuple(U.shape)}")
    if closed_form and P.shape[-1] != 2:
        raise ValueError(f"closed_form=True needs two classes, got {P.shape[-1]}; leave it out")
    U, dtype = U.to(P.dtype), P.dtype
    if P.shape[-1] == 2 and len(P) + len(U) <= FEW_POINTS:
        # All pairs need fewer operations than a grid, whose size does not depend on K.
        P, U = P.double(), U.double()
    elif P.shape[-1] == 2:
        # The second probability is one minus the first, so the loss depends on the first alone.
        p, u = P[..., 0].mT, U[:, 0].contiguous()
        gamma = interval_median(p.detach(), u)
        if grid_is_exact(gamma, p.shape[1], len(u)):
            return (closed_form_mmd(p, gamma) if closed_form else interval_mmd(p, u, gamma)).mean()
    # This median is exact. The error of interval_median is too large for a small bandwidth.
    gamma = median_bandwidth(P.detach().transpose(0, 1), U)
    if closed_form:
        return closed_form_mmd(P[..., 0].mT, gamma, on_grid=False).mean().to(dtype)
    return mmd(P.transpose(0, 1), U, gamma).mean().to(dtype)


def mmd_by_definition(P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and samples (M, d) with bandwidths gamma (B,)."""
    widths = gamma[:, None, None]
    within, between, within_u = (
        kernel(squared, widths).mean(dim=(1, 2))
        for squared in (
            (P[:, :, None] - P[:, None]).square().sum(-1),
            (P[:, :, None] - U).square().sum(-1),
            (U[:, None] - U).square().sum(-1),
        )
    )
    return combine_means(within, between, within_u, P.shape[1], len(U))


def mmd(P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """As ``mmd_by_definition``; the gradient is computed along with the values."""

    def pieces_of(P: torch.Tensor, start: int, stop: int) -> list[Piece]:
        squared_uu = _squared_distances(U, U)
        return [
            _values_and_gradients(P[group], U, gamma[group], squared_uu)
            for group in _groups(start, stop, P.shape[1] + len(U))
        ]

    n_numbers = len(P) * P.shape[1] * (P.shape[1] + len(U))
    return with_gradient(P, pieces_of, lambda P: mmd_by_definition(P, U, gamma), n_numbers)


def _values_and_gradients(
    predictions: torch.Tensor, U: torch.Tensor, widths: torch.Tensor, squared_uu: torch.Tensor
) -> Piece:
    """The MMD (b,) of some inputs, and its gradient with respect to predictions (b, K, d)."""
    n_p, n_u = predictions.shape[1], len(U)
    points = _with_samples(predictions, U)
    squared = _squared_distances(predictions, points)
    widths = widths[:, None, None]
    values_k, slope = kernel_and_slope(squared, widths)
    kernel_uu, _ = kernel_and_slope(squared_uu, widths)
    kernels = values_k[..., :n_p], values_k[..., n_p:], kernel_uu
    within, between, within_u = (pairs.mean(dim=(1, 2)) for pairs in kernels)
    values = combine_means(within, between, within_u, n_p, n_u)
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q); a pair within P counts twice.
    slope[..., :n_p] *= 4.0 / (n_p * (n_p - 1))
    slope[..., n_p:] *= -4.0 / (n_p * n_u)
    return values, predictions * slope.sum(dim=2, keepdim=True) - slope @ points


def median_bandwidth(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Median (B,) of all pairwise distances of predictions (B, K, d) and samples (M, d)."""
    n = P.shape[1] + U.shape[0]
    rows, columns = torch.triu_indices(n, n, offset=1, device=P.device)

    def medians(start: int, stop: int) -> list[torch.Tensor]:
        gammas = []
        for group in _groups(start, stop, n):
            points = _with_samples(P[group], U)
            squared = _squared_distances(points, points)
            gammas.append(squared[:, rows, columns].median(dim=1).values.sqrt())
        return gammas

    gammas = list(chain(*run_on_threads(len(P), medians)))
    return torch.cat(gammas).clamp_(min=MIN_BANDWIDTH)


def _groups(start: int, stop: int, n_points: int) -> Iterator[slice]:
    """Slices of the inputs from start to stop; those of a slice are computed together."""
    size = max(PAIRS_AT_ONCE // n_points**2, 1)
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def _with_samples(predictions: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Points (b, K + M, d) from predictions (b, K, d) and samples (M, d)."""
    return torch.cat([predictions, U.expand(len(predictions), *U.shape)], dim=1)


def _squared_distances(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Squared distances (..., n, m) of points (..., n, d) and (..., m, d) of the simplex."""
    if p.shape[-1] < _MANY_CLASSES:
        return torch.cdist(p, q, compute_mode=_BY_DIFFERENCES).square()
    # |a|^2 + |b|^2 - 2 ab in float64 has an error of 1e-16, far below the square of any bandwidth.
    a, b = p.double(), q.double()
    norms = a.norm(dim=-1).square()[..., :, None] + b.norm(dim=-1).square()[..., None, :]
    return norms.sub_(a @ b.mT, alpha=2.0).clamp_(min=0.0).to(p.dtype)
