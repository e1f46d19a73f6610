r"""Maximum mean discrepancy between predictions and the uniform law on the simplex.

The kernel is the paper's: a sum of nine Gaussians, :math:`k(x, y) = \sum_{i=-4}^{4}
\exp(-\|x - y\|^2 / 2\gamma_i^2)`, :math:`\gamma_i = 2^i \gamma_{med}`, with one median
bandwidth for each input. This file holds the form for any number of classes; two classes
have a faster one in :mod:`sklearn_mmdinit._objective.mmd_interval`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from .._compute import share

__all__ = [
    "BANDWIDTH_EXPONENTS",
    "ESTIMATORS",
    "combine_means",
    "kernel_and_slope",
    "median_bandwidth",
    "mmd",
]

BANDWIDTH_EXPONENTS = tuple(range(-4, 5))
N_BANDWIDTHS = len(BANDWIDTH_EXPONENTS)

# Smallest bandwidth allowed: identical predictions and references have median distance 0.
_MIN_BANDWIDTH = 1e-6

# Distances that are computed at once: those of one input where there are many, and of several
# where each has few, for which calls would take longer than numbers.
_PAIRS_AT_ONCE = 1 << 17

# Of torch.cdist: exact at small distances too.
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"


def _unbiased(mean: torch.Tensor, n: int) -> torch.Tensor:
    # The n diagonal terms k(x, x) = 9 leave the mean over all n^2 pairs: a U-statistic.
    return (n * mean - N_BANDWIDTHS) / (n - 1)


def _biased(mean: torch.Tensor, n: int) -> torch.Tensor:
    return mean


# Mean of the kernel within a set of n points, from its mean over all n^2 ordered pairs, and
# the factor that the change applies to gradients.
ESTIMATORS = {
    "unbiased": (_unbiased, lambda n: n / (n - 1)),
    "biased": (_biased, lambda n: 1.0),
}


def combine_means(
    within_p: torch.Tensor,
    between: torch.Tensor,
    within_u: torch.Tensor,
    n_p: int,
    n_u: int | None,
    estimator: str,
) -> torch.Tensor:
    """MMD from the kernel's means over all pairs; n_u None where within_u is an expectation."""
    within, _ = ESTIMATORS[estimator]
    if n_u is not None:
        within_u = within(within_u, n_u)
    return within(within_p, n_p) - 2.0 * between + within_u


def _groups(start: int, stop: int, n_points: int) -> Iterator[slice]:
    """Inputs that are looked at together, each with so many points."""
    size = max(_PAIRS_AT_ONCE // n_points**2, 1)
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


def _with_references(predictions: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Points (b, K + M, d) from predictions (b, K, d) and references (M, d)."""
    return torch.cat([predictions, U.expand(len(predictions), *U.shape)], dim=1)


def median_bandwidth(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    r"""Median of all pairwise Euclidean distances of predictions and references.

    Parameters
    ----------
    P : Tensor of shape (B, K, d)
        K predictions for each of B inputs.
    U : Tensor of shape (M, d)
        Reference samples, shared by the inputs.

    Returns
    -------
    Tensor of shape (B,)
        :math:`\gamma_{med}` for each input, from all K(K-1)/2 + KM + M(M-1)/2 pairs (the
        lower median where their number is even); no gradient flows through it.
    """
    with torch.no_grad():
        n = P.shape[1] + U.shape[0]
        rows, columns = torch.triu_indices(n, n, offset=1, device=P.device)

        def stretch(start: int, stop: int) -> list[torch.Tensor]:
            gammas = []
            for group in _groups(start, stop, n):
                points = _with_references(P[group], U)
                # Differences and not the Gram matrix: its cancellation is felt at small ones.
                distances = torch.cdist(points, points, compute_mode=_BY_DIFFERENCES)
                gammas.append(distances[:, rows, columns].median(dim=1).values)
            return gammas

        gammas = list(chain(*share(len(P), stretch)))
        return torch.cat(gammas).clamp_(min=_MIN_BANDWIDTH)


def kernel_and_slope(
    squared: torch.Tensor, gamma: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel and its derivative with respect to the squared distance.

    Halving a bandwidth raises its Gaussian to the fourth power. Three exponentials and two
    such steps from each give all nine; eight steps from one would lose digits in float32.

    Parameters
    ----------
    squared : Tensor
        Squared distances.
    gamma : Tensor, broadcastable with `squared`
        Median bandwidth.

    Returns
    -------
    kernel, slope : Tensor
        Of the broadcast shape.
    """
    shape = torch.broadcast_shapes(squared.shape, gamma.shape)
    kernel, slope = squared.new_zeros(shape), squared.new_zeros(shape)
    for widest in BANDWIDTH_EXPONENTS[2::3]:
        rate = -0.5 / (gamma * 2.0**widest).square()
        gaussian = torch.exp(squared * rate)
        for halvings in range(3):
            if halvings:
                gaussian = gaussian.square().square_()
            kernel += gaussian
            slope += gaussian * (rate * 4.0**halvings)
    return kernel, slope


def _values_and_gradients(
    predictions: torch.Tensor,
    U: torch.Tensor,
    widths: torch.Tensor,
    squared_uu: torch.Tensor,
    estimator: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The MMD (b,) of some inputs and its gradient (b, K, d) with respect to predictions."""
    n_p, n_u = predictions.shape[1], len(U)
    points = _with_references(predictions, U)
    squared = torch.cdist(predictions, points, compute_mode=_BY_DIFFERENCES).square()
    widths = widths[:, None, None]
    kernel, slope = kernel_and_slope(squared, widths)
    kernel_uu, _ = kernel_and_slope(squared_uu, widths)
    within, between, within_u = (
        pairs.mean(dim=(1, 2)) for pairs in (kernel[..., :n_p], kernel[..., n_p:], kernel_uu)
    )
    values = combine_means(within, between, within_u, n_p, n_u, estimator)
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q); a pair within P is met twice.
    slope[..., :n_p] *= 4.0 * ESTIMATORS[estimator][1](n_p) / n_p**2
    slope[..., n_p:] *= -4.0 / (n_p * n_u)
    return values, predictions * slope.sum(dim=2, keepdim=True) - slope @ points


class _DenseMMD(torch.autograd.Function):
    """Kernel matrices of few inputs at a time, of which the closed-form gradient alone is kept."""

    @staticmethod
    def forward(
        ctx: Any, P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor, estimator: str
    ) -> torch.Tensor:
        def stretch(start: int, stop: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
            squared_uu = torch.cdist(U, U, compute_mode=_BY_DIFFERENCES).square()
            return [
                _values_and_gradients(P[group], U, gamma[group], squared_uu, estimator)
                for group in _groups(start, stop, P.shape[1] + len(U))
            ]

        values, gradients = zip(*chain(*share(len(P), stretch)), strict=True)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0][:, None, None], None, None, None


def mmd(
    P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor, estimator: str = "unbiased"
) -> torch.Tensor:
    """MMD of K predictions and M reference samples, for each input.

    Parameters
    ----------
    P : Tensor of shape (B, K, d)
        Predictions; gradients flow to them alone.
    U : Tensor of shape (M, d)
        Reference samples.
    gamma : Tensor of shape (B,)
        Median bandwidth of each input.
    estimator : {"unbiased", "biased"}, default="unbiased"
        Within-set means without or with the pairs of a point with itself.

    Returns
    -------
    Tensor of shape (B,)
        Eq. (mmd_normal_nbd) of the paper.
    """
    values: torch.Tensor = _DenseMMD.apply(P, U, gamma, estimator)
    return values
