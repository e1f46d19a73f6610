r"""Uniformity, L_uni: predictions for each input spread over the simplex.

For each input, the maximum mean discrepancy between its K predictions and the uniform law is

.. math:: MMD = E k(p, p') - 2 E k(p, u) + E k(u, u'),
          \qquad k(a, b) = \sum_{i=-4}^{4} \exp\frac{-\|a - b\|^2}{2 (2^i \gamma)^2}.

Here :math:`\gamma` is the median of all pairwise distances of that input. The gradient treats it as
a constant. Means within a set leave out the pairs of a point with itself (a U-statistic), so that 0
means "uniform".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

from .._base.environment import full_precision
from ._interval import FEW_POINTS, grid_is_exact, interval_median, interval_mmd
from ._shared import (
    MIN_BANDWIDTH,
    Piece,
    check_probabilities,
    checked_predictions,
    combine_means,
    groups,
    kernel_and_slope,
    with_gradient,
)


@full_precision()
def uniformity(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    r"""L_uni: the mean over inputs of the MMD between predictions and the uniform distribution.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex, such as normalized Exp(1) draws.

    Returns
    -------
    Tensor, scalar
        Eq. (uniformity_loss) of the paper, float32 or float64. It is differentiable once with
        respect to `P`, with the median bandwidth as a constant.

    Raises
    ------
    ValueError
        If `P` or `U` has another shape, too few rows or, on a CPU, no probabilities.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import uniformity
    >>> draws = torch.rand(2, 512, 1, 1, generator=torch.Generator().manual_seed(0))
    >>> first, second = torch.cat([draws, 1 - draws], dim=-1)
    >>> same_distribution = uniformity(first, second[:, 0])
    >>> one_point = uniformity(torch.full((512, 1, 2), 0.5), second[:, 0])
    >>> bool(abs(same_distribution) < 0.05 < one_point)
    True
    """
    P = checked_predictions(P)
    if U.ndim != 2 or U.shape[1] != P.shape[-1]:
        valid = f"(n_samples, {P.shape[-1]}), the classes of P"
        raise ValueError(f"U must be of shape {valid}, got {tuple(U.shape)}")
    if min(len(P), len(U)) < 2:
        n_each = f"{len(P)} and {len(U)}"
        raise ValueError(f"P needs two networks or more, and U two samples or more, got {n_each}")
    check_probabilities("U", U)
    return _fastest_mmd(P.transpose(0, 1), U.to(P.dtype)).mean().to(P.dtype)


def _fastest_mmd(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and samples (M, d), by the faster form that is exact.

    The sum over all pairs works for any number of classes. For two classes and many points a grid
    is ten times as fast, because its size does not depend on K. It is exact if no bandwidth is
    small.
    """
    n_p, n_u = P.shape[1], len(U)
    if P.shape[2] == 2 and n_p + n_u > FEW_POINTS:
        # The second probability is one minus the first, so the loss depends on the first alone.
        p, u = P[..., 0], U[:, 0].contiguous()
        gamma = interval_median(p.detach(), u)
        if grid_is_exact(gamma, n_p, n_u):
            return interval_mmd(p, u, gamma)
    return mmd(P, U)


def mmd(P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor | None = None) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and samples (M, d), over all pairs of points.

    Bandwidths gamma (B,) are the median distances unless they are given.
    """

    def pieces_of(start: int, stop: int) -> list[Piece]:
        return [
            _values_and_gradients(P[group], U, squared, None if gamma is None else gamma[group])
            for group, squared in _squared_distances(P, U, start, stop)
        ]

    return with_gradient(P, pieces_of, len(P) * (P.shape[1] + len(U)) ** 2)


def _values_and_gradients(
    predictions: torch.Tensor, U: torch.Tensor, squared: torch.Tensor, gamma: torch.Tensor | None
) -> Piece:
    """The MMD (b,) of some inputs, and its gradient with respect to predictions (b, K, d)."""
    n_p, n_u = predictions.shape[1], len(U)
    shape = (-1, n_p, n_p + n_u)
    n_of_p = n_p * (n_p + n_u)
    if gamma is None:
        gamma = _medians(squared, n_p, n_u)
    kernels, slopes = kernel_and_slope(squared, gamma[:, None])
    of_p = kernels[:, :n_of_p].view(shape).mean(dim=1)
    within, between = of_p[:, :n_p].mean(dim=1), of_p[:, n_p:].mean(dim=1)
    # `squared` has each pair within U once, and no pair of a point with itself.
    values = combine_means(within, between, kernels[:, n_of_p:].mean(dim=1), n_p, None)
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q); a pair within P counts twice.
    points = _with_samples(predictions, U)
    weights = points.new_full((n_p + n_u, 1), -4.0 / (n_p * n_u))
    weights[:n_p].fill_(4.0 / (n_p * (n_p - 1)))
    weighted = torch.cat([points * weights, weights.expand(len(points), -1, -1)], dim=2)
    sums = slopes[:, :n_of_p].view(shape) @ weighted
    return values, predictions * sums[..., -1:] - sums[..., :-1]


def _squared_distances(
    P: torch.Tensor, U: torch.Tensor, start: int, stop: int
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Groups of inputs from start to stop, with squared distances (b, K (K + M) + M (M - 1) / 2).

    First come the distances of each prediction (b, K, d) to all points, then those within U.
    """
    n_p = P.shape[1]
    within_u = torch.pdist(U).square_()
    for group in groups(start, stop, (n_p + len(U)) ** 2, P.device):
        # |a|^2 + |b|^2 - 2 ab in float64 has an error of 1e-16, far below any bandwidth's square.
        points = _with_samples(P[group], U).double()
        norms = points.square().sum(dim=-1)
        squared = torch.baddbmm(norms[:, None], points[:, :n_p], points.mT, alpha=-2.0)
        squared += norms[:, :n_p, None]
        of_p = squared.to(P.dtype).flatten(1)
        yield group, torch.cat([of_p, within_u.expand(len(of_p), -1)], dim=1)


def _medians(squared: torch.Tensor, n_p: int, n_u: int) -> torch.Tensor:
    """Lower medians (b,) of the distances in rows of ``_squared_distances``."""
    n = n_p + n_u
    # Each pair within P occurs twice. One of the two, and each point with itself, become infinite.
    last = squared.new_full((n_p, n), math.inf).tril_().flatten()
    pairs = torch.cat([squared[:, : len(last)] + last, squared[:, len(last) :]], dim=1)
    rank = (n * (n - 1) // 2 - 1) // 2
    if pairs.device.type == "cpu":  # ten times as fast as kthvalue
        medians = torch.from_numpy(np.partition(pairs.numpy(), rank, axis=1)[:, rank])
    else:
        medians = pairs.kthvalue(rank + 1, dim=1).values
    return medians.clamp(min=MIN_BANDWIDTH**2).sqrt()


def _with_samples(predictions: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Points (b, K + M, d) from predictions (b, K, d) and samples (M, d)."""
    return torch.cat([predictions, U.expand(len(predictions), *U.shape)], dim=1)
