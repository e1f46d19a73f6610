r"""Maximum mean discrepancy between predictions and the uniform law on the simplex.

.. math:: MMD = E k(p, p') - 2 E k(p, u) + E k(u, u'),
          \qquad k(a, b) = \sum_{i=-4}^{4} \exp\frac{-\|a - b\|^2}{2 (2^i \gamma)^2},

with the median of all pairwise distances as :math:`\gamma`, for each input, no gradient through
it. Means within a set leave out the pairs of a point with itself (a U-statistic), so that 0 means
"uniform".
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from .._core.threads import share

__all__ = ["BANDWIDTH_EXPONENTS", "combine_means", "kernel_and_slope", "median_bandwidth", "mmd"]

BANDWIDTH_EXPONENTS = tuple(range(-4, 5))

# Smallest bandwidth allowed: identical predictions and references have median distance 0.
_MIN_BANDWIDTH = 1e-6

# Distances that are computed at once: those of one input where there are many, and of several
# where each has few, for which calls would take longer than numbers.
_PAIRS_AT_ONCE = 1 << 17

# Of torch.cdist: exact at small distances too.
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"


def kernel_and_slope(
    squared: torch.Tensor, gamma: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The kernel and its derivative with respect to the squared distance.

    Bandwidths are a factor of 2 apart: three exponentials and their fourth powers serve all nine.
    One exponential alone would be wrong by 7e-3 in float32, three are by 5e-6.
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


def _without_itself(mean: torch.Tensor, n: int) -> torch.Tensor:
    """A mean over all n^2 pairs without the n of a point with itself, where the kernel is 9."""
    return (n * mean - len(BANDWIDTH_EXPONENTS)) / (n - 1)


def combine_means(
    within_p: torch.Tensor, between: torch.Tensor, within_u: torch.Tensor, n_p: int, n_u: int | None
) -> torch.Tensor:
    """MMD from the kernel's means over all pairs; n_u None where within_u is an expectation."""
    if n_u is not None:
        within_u = _without_itself(within_u, n_u)
    return _without_itself(within_p, n_p) - 2.0 * between + within_u


def _groups(start: int, stop: int, n_points: int) -> Iterator[slice]:
    """Inputs that are looked at together, each with so many points."""
    size = max(_PAIRS_AT_ONCE // n_points**2, 1)
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


def _with_references(predictions: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Points (b, K + M, d) from predictions (b, K, d) and references (M, d)."""
    return torch.cat([predictions, U.expand(len(predictions), *U.shape)], dim=1)


def median_bandwidth(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Median (B,) of all pairwise distances of predictions (B, K, d) and references (M, d)."""
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


def mmd(P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and references (M, d) with bandwidths gamma (B,)."""
    values: torch.Tensor = _DenseMMD.apply(P, U, gamma)
    return values


class _DenseMMD(torch.autograd.Function):
    """Kernel matrices of few inputs at a time, of which the closed-form gradient alone is kept."""

    @staticmethod
    def forward(ctx: Any, P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        def stretch(start: int, stop: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
            squared_uu = torch.cdist(U, U, compute_mode=_BY_DIFFERENCES).square()
            return [
                _values_and_gradients(P[group], U, gamma[group], squared_uu)
                for group in _groups(start, stop, P.shape[1] + len(U))
            ]

        values, gradients = zip(*chain(*share(len(P), stretch)), strict=True)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0][:, None, None], None, None


def _values_and_gradients(
    predictions: torch.Tensor, U: torch.Tensor, widths: torch.Tensor, squared_uu: torch.Tensor
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
    values = combine_means(within, between, within_u, n_p, n_u)
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q); a pair within P is met twice.
    slope[..., :n_p] *= 4.0 / (n_p * (n_p - 1))
    slope[..., n_p:] *= -4.0 / (n_p * n_u)
    return values, predictions * slope.sum(dim=2, keepdim=True) - slope @ points
