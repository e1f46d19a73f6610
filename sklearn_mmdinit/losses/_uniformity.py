r"""Uniformity, L_uni: predictions for each input spread over the simplex.

For each input, the maximum mean discrepancy between its K predictions and the uniform distribution
is

.. math:: MMD = E k(p, p') - 2 E k(p, u) + E k(u, u'),
          \qquad k(a, b) = \sum_{i=-4}^{4} \exp\frac{-\|a - b\|^2}{2 (2^i \gamma)^2}.

Here :math:`\gamma` is the median of all pairwise distances of that input. The gradient treats it as
a constant. Means within a set leave out the pairs of a point with itself (a U-statistic), so that 0
means "uniform".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch

from .._base.environment import full_precision
from .._base.threads import run_on_threads
from ._shared import (
    BANDWIDTH_FACTORS,
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
    r"""Distance between the predictions for an input and the uniform distribution on the simplex.

    L_uni, the squared maximum mean discrepancy (MMD), averaged over the inputs.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex, such as normalized Exp(1) draws.

    Returns
    -------
    Tensor, scalar
        The paper's uniformity loss, float32 or float64. It is differentiable once with respect to
        `P`; the bandwidth of the kernels, a median distance, counts as a constant.

    Raises
    ------
    ValueError
        If `P` or `U` has another shape, too few rows, or no probabilities (checked on a CPU only).

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
    if U.ndim != 2 or U.shape[1] != P.shape[-1] or min(len(P), len(U)) < 2:
        valid = "P and U must be of shape (K, B, d) and (M, d), with K and M of at least 2"
        raise ValueError(f"{valid}, got {tuple(P.shape)} and {tuple(U.shape)}")
    check_probabilities("U", U)
    return _fastest_mmd(P.transpose(0, 1), U.to(P.dtype)).mean().to(P.dtype)


def _fastest_mmd(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and samples (M, d), by the faster form that is exact.

    The sum over all pairs works for any number of classes. For two classes and many points a grid
    is ten times as fast, because its size does not depend on K. It is exact if no bandwidth is
    small.
    """
    n_p, n_u = P.shape[1], len(U)
    if P.shape[2] == 2 and n_p + n_u > _FEW_POINTS:
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
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q), and a pair within P counts twice. One product gives
    # both parts of sum_q w_q (p - q) = p sum_q w_q - sum_q w_q q.
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


# Two classes, where the simplex is an interval: on a grid, without pairs
#
# A prediction is one number p in [0, 1], and distances are sqrt(2) |p - q|. If there are many
# points and no bandwidth is small, the points are spread on a regular grid by sixth-order Lagrange
# weights. On the grid, sums of the kernel are a convolution, computed by FFTs. The same weights
# interpolate its values and derivatives at the points. For the smallest of the nine bandwidths the
# relative error is below 1e-6. A sum over all pairs in float32 has a rounding error of this size.
# The error of derivatives is below 4e-5 of the largest one.

_ORDER = 6
_MARGIN = 3  # grid nodes beyond either end, so that edge points have a centred stencil
_N_NODES = 1024
_STEP = 1.0 / (_N_NODES - 1 - 2 * _MARGIN)

# With at most this many points, the sum over all pairs takes less time than the grid.
_FEW_POINTS = 32

# Below this median bandwidth the narrowest Gaussian spans too few nodes for an error of 1e-6.
_SMALLEST_BANDWIDTH = 0.009375 / BANDWIDTH_FACTORS[0]

# On a GPU the bandwidth is not checked. It is above _SMALLEST_BANDWIDTH, 0.15, if there are at
# least this many samples and no more predictions than samples: in 2,000 trials with
# predictions chosen to make it small, the smallest was 0.153. With fewer samples it was too small:
# 0.08 with 32 of both, 0.12 with 64.
_ENOUGH_SAMPLES = 128

# Number of halvings in the search for the median distance. Its error is then 3e-5 of the largest
# distance, which changes the loss by a relative 1e-5 at most.
_N_HALVINGS = 14


@cache
def _lagrange_coefficients(device: torch.device) -> torch.Tensor:
    """Coefficients (power, 12): a column for each Lagrange polynomial, then for each derivative."""
    nodes = torch.arange(_ORDER, dtype=torch.float64) - 2
    polynomials = torch.linalg.inv(torch.vander(nodes, increasing=True))
    derivatives = torch.zeros_like(polynomials)
    derivatives[:-1] = polynomials[1:] * torch.arange(1, _ORDER)[:, None] / _STEP
    return torch.cat([polynomials, derivatives], dim=1).to(device)


def _stencil(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Node indices, interpolation weights and their derivatives, each (..., 6)."""
    position = q / _STEP + _MARGIN
    left = position.floor().clamp_(min=2, max=_N_NODES - 4)
    fraction = (position - left).unsqueeze(-1)
    coefficients = _lagrange_coefficients(q.device)
    powers = fraction.expand(*q.shape, _ORDER - 1).cumprod(dim=-1)
    both = powers @ coefficients[1:] + coefficients[0]
    weights, derivatives = both[..., :_ORDER], both[..., _ORDER:]
    offsets = torch.arange(_ORDER, device=q.device) - 2
    # NaN has no node; its weights are NaN, and so is the loss, which training reports.
    nodes = left.nan_to_num(nan=2.0).long()
    return nodes.unsqueeze(-1) + offsets, weights, derivatives


def _spread(index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Masses on the grid (rows, nodes), over which each of n points spreads its mass 1 / n."""
    rows, n = index.shape[:2]
    grid = torch.zeros(rows, _N_NODES, dtype=weights.dtype, device=weights.device)
    return grid.scatter_add_(1, index.flatten(1), weights.flatten(1) / n)


def _circulant_spectrum(gamma: torch.Tensor) -> torch.Tensor:
    """Spectrum (rows, nodes + 1) of the kernel of grid differences, embedded in a circulant."""
    lags = torch.arange(_N_NODES + 1, dtype=gamma.dtype, device=gamma.device) * _STEP
    kernel, _ = kernel_and_slope(2.0 * lags.square(), gamma[:, None])
    circle = torch.cat([kernel, kernel[:, 1:-1].flip(1)], dim=1)
    return torch.fft.rfft(circle).real


def _convolve(spectrum: torch.Tensor, measure: torch.Tensor) -> torch.Tensor:
    """Integral of the kernel against a measure on the grid, at every node."""
    padded = torch.fft.rfft(measure, n=2 * _N_NODES)
    return torch.fft.irfft(spectrum * padded, n=2 * _N_NODES)[:, :_N_NODES]


def _slopes(field: torch.Tensor, index: torch.Tensor, derivatives: torch.Tensor) -> torch.Tensor:
    """Derivatives (rows, n) of a function on the grid, at the points of a stencil."""
    read = field.gather(1, index.flatten(1)).view_as(derivatives)
    return (read * derivatives).sum(-1)


def interval_mmd(p: torch.Tensor, u: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """MMD (B,) for two classes, from the probabilities p (B, K) and u (M,) of the first one."""
    n_p, n_u = p.shape[1], len(u)

    def pieces_of(start: int, stop: int) -> list[Piece]:
        index, weights, derivatives = _stencil(p[start:stop].double())
        index_u, weights_u, _ = _stencil(u.double()[None])
        spectrum = _circulant_spectrum(gamma[start:stop].double())
        mass_p, mass_u = _spread(index, weights), _spread(index_u, weights_u)
        field_p, field_u = _convolve(spectrum, mass_p), _convolve(spectrum, mass_u)
        within_p, within_u = (field_p * mass_p).sum(1), (field_u * mass_u).sum(1)
        values = combine_means(within_p, (field_u * mass_p).sum(1), within_u, n_p, n_u)
        field = (n_p / (n_p - 1) * field_p - field_u) * (2.0 / n_p)
        return [(values.to(p.dtype), _slopes(field, index, derivatives).to(p.dtype))]

    return with_gradient(p, pieces_of, len(p) * _N_NODES)


def grid_is_exact(gamma: torch.Tensor, n_p: int, n_u: int) -> bool:
    """Whether the grid's error is below 1e-6.

    On a CPU the bandwidths decide. On a GPU the numbers of points decide, because reading the
    bandwidths would wait for the GPU.
    """
    if gamma.device.type == "cpu":
        return float(gamma.min()) >= _SMALLEST_BANDWIDTH
    return n_u >= max(n_p, _ENOUGH_SAMPLES)


def interval_median(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Lower median (B,) of the distances among p (B, K) and u (M,), by counting without pairs.

    The points of a row are sorted. Then one binary search for each point counts the pairs whose
    distance is at most t. Bisection finds the smallest t with half of the pairs. Its error is
    3e-5 of the largest distance.
    """
    # The number of threads depends on this. A binary search takes as long as three operations.
    n_numbers = 3 * _N_HALVINGS * p.numel()
    return torch.cat(
        run_on_threads(len(p), lambda start, stop: _interval_medians(p[start:stop], u), n_numbers)
    )


def _interval_medians(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    rows = p.shape[0]
    points = torch.cat([p, u.expand(rows, -1)], dim=1).sort(dim=1).values
    n = points.shape[1]
    n_pairs = n * (n - 1) // 2
    rank_of_median = (n_pairs - 1) // 2 + 1
    # The count of each point also includes the point itself and all points before it: in all
    # 1 + 2 + ... + n = n + n_pairs.
    target = rank_of_median + n + n_pairs
    span = points[:, -1:] - points[:, :1]
    low = torch.zeros_like(span)
    # Trying 31 distances at once replaces five halvings. On a GPU this is faster, because launching
    # an operation takes longer than computing it.
    at_once = 1 if p.device.type == "cpu" else 5
    parts = torch.arange(1, 2**at_once, device=p.device)
    for n_halvings in range(at_once, _N_HALVINGS + at_once, at_once):
        step = span * 0.5**n_halvings
        ends = points[:, None] + (low + step * parts)[..., None]
        ranks = torch.searchsorted(points, ends.flatten(1), right=True)
        low = low + step * (ranks.view_as(ends).sum(2) < target).sum(1, keepdim=True)
    return ((low + 0.5 * step) * math.sqrt(2.0)).squeeze(1).clamp_(min=MIN_BANDWIDTH)
