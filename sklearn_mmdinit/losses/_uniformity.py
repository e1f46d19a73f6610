r"""Uniformity, L_uni: predictions for each input spread over the simplex.

The maximum mean discrepancy between the K predictions for an input and the uniform law,

.. math:: MMD = E k(p, p') - 2 E k(p, u) + E k(u, u'),
          \qquad k(a, b) = \sum_{i=-4}^{4} \exp\frac{-\|a - b\|^2}{2 (2^i \gamma)^2},

with the median of all pairwise distances as :math:`\gamma`, for each input, no gradient through
it. Means within a set leave out the pairs of a point with itself (a U-statistic), so that 0 means
"uniform".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import chain
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .._base.threads import run_on_threads

BANDWIDTH_EXPONENTS = tuple(range(-4, 5))

# Smallest bandwidth allowed: identical predictions and references have median distance 0.
_MIN_BANDWIDTH = 1e-6

# Distances that are computed at once: those of one input where there are many, and of several
# where each has few, for which calls would take longer than numbers.
_PAIRS_AT_ONCE = 1 << 17

# Of torch.cdist: exact at small distances too.
_BY_DIFFERENCES = "donot_use_mm_for_euclid_dist"
# Classes from which on differences take many times as long as a product in float64.
_MANY_CLASSES = 64


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
        Eq. (uniformity_loss) of the paper; differentiable by `P`, once.

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
            return (closed_form_mmd(p, gamma) if closed_form else interval_mmd(p, u, gamma)).mean()
    elif closed_form:
        raise ValueError(f"the closed form is known for two classes, got {P.shape[-1]}")
    gamma = median_bandwidth(P.transpose(0, 1), U)
    if closed_form:
        return closed_form_mmd(p, gamma, on_grid=False).mean()
    return mmd(P.transpose(0, 1), U, gamma).mean()


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


def _squared_distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Squared distances (..., n, m) of points (..., n, d) and (..., m, d) of the simplex."""
    if one.shape[-1] < _MANY_CLASSES:
        return torch.cdist(one, other, compute_mode=_BY_DIFFERENCES).square()
    # |a|^2 + |b|^2 - 2 ab of numbers below 1: what cancels in float64 is 1e-16, that is, nothing
    # to distances of the smallest bandwidth.
    a, b = one.double(), other.double()
    norms = a.norm(dim=-1).square()[..., :, None] + b.norm(dim=-1).square()[..., None, :]
    return norms.sub_(a @ b.mT, alpha=2.0).clamp_(min=0.0).to(one.dtype)


def median_bandwidth(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Median (B,) of all pairwise distances of predictions (B, K, d) and references (M, d)."""
    n = P.shape[1] + U.shape[0]
    rows, columns = torch.triu_indices(n, n, offset=1, device=P.device)

    def stretch(start: int, stop: int) -> list[torch.Tensor]:
        gammas = []
        for group in _groups(start, stop, n):
            points = _with_references(P[group], U)
            squared = _squared_distances(points, points)
            gammas.append(squared[:, rows, columns].median(dim=1).values.sqrt())
        return gammas

    gammas = list(chain(*run_on_threads(len(P), stretch)))
    return torch.cat(gammas).clamp_(min=_MIN_BANDWIDTH)


# The values (b,) of some of the points, and their gradient with respect to these.
_Pair = tuple[torch.Tensor, torch.Tensor]


class _InClosedForm(torch.autograd.Function):
    """A value (B,) for each of B sets of points, of which the gradient alone is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        points: torch.Tensor,
        pairs_of: Callable[[torch.Tensor, int, int], list[_Pair]],
        n_numbers: int,  # that are computed at a time, of all sets
    ) -> torch.Tensor:
        pieces = run_on_threads(len(points), partial(pairs_of, points), n_numbers)
        values, gradients = zip(*chain(*pieces), strict=True)
        ctx.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0].view(-1, *[1] * (gradient.ndim - 1)), None, None


def mmd(P: torch.Tensor, U: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """MMD (B,) of predictions (B, K, d) and references (M, d) with bandwidths gamma (B,)."""

    def pairs_of(P: torch.Tensor, start: int, stop: int) -> list[_Pair]:
        squared_uu = _squared_distances(U, U)
        # Kernel matrices of few inputs at a time.
        return [
            _values_and_gradients(P[group], U, gamma[group], squared_uu)
            for group in _groups(start, stop, P.shape[1] + len(U))
        ]

    return _InClosedForm.apply(P, pairs_of, len(P) * P.shape[1] * (P.shape[1] + len(U)))


def _values_and_gradients(
    predictions: torch.Tensor, U: torch.Tensor, widths: torch.Tensor, squared_uu: torch.Tensor
) -> _Pair:
    """The MMD (b,) of some inputs and its gradient (b, K, d) with respect to predictions."""
    n_p, n_u = predictions.shape[1], len(U)
    points = _with_references(predictions, U)
    squared = _squared_distances(predictions, points)
    widths = widths[:, None, None]
    kernel, slope = kernel_and_slope(squared, widths)
    kernel_uu, _ = kernel_and_slope(squared_uu, widths)
    kernels = kernel[..., :n_p], kernel[..., n_p:], kernel_uu
    within, between, within_u = (pairs.mean(dim=(1, 2)) for pairs in kernels)
    values = combine_means(within, between, within_u, n_p, n_u)
    # d k(p, q) / dp = 2 k'(|p - q|^2) (p - q); a pair within P is met twice.
    slope[..., :n_p] *= 4.0 / (n_p * (n_p - 1))
    slope[..., n_p:] *= -4.0 / (n_p * n_u)
    return values, predictions * slope.sum(dim=2, keepdim=True) - slope @ points


# Two classes, where the simplex is an interval
#
# With d = 2 a prediction is one number p in [0, 1] and distances are sqrt(2) |p - q|. The points
# are spread onto a regular grid by sixth-order Lagrange weights, the kernel becomes a circulant
# product there (two FFTs), and values and derivatives are read back with the same weights. For the
# smallest of the nine bandwidths the relative error is below 1e-6, as small as float32 leaves it in
# the dense form (of derivatives 4e-5 of the largest).

_ORDER = 6
_MARGIN = 3  # grid nodes beyond either end, so that edge points have a centred stencil
_N_NODES = 1024
_STEP = 1.0 / (_N_NODES - 1 - 2 * _MARGIN)

# Up to so many all pairs take less time than the grid.
_FEW_POINTS = 32

# Below this median bandwidth the narrowest Gaussian spans too few nodes for 1e-6.
_SMALLEST_BANDWIDTH = 0.15

# With as many references, and as many as predictions, the median is above that however the
# predictions lie: of 2,000 draws with all of them where references are densest the least is 0.153
# (0.08 with 32 of both, 0.12 with 64).
_ENOUGH_REFERENCES = 128

# Halvings of the search for the median distance: to 3e-5 of the largest one. A bandwidth that far
# off changes the loss by less than 1e-5 of itself.
_N_HALVINGS = 14


@cache
def _lagrange_coefficients(device: torch.device) -> torch.Tensor:
    """Coefficients (power, node) of the Lagrange polynomials of the nodes -2 .. 3."""
    nodes = torch.arange(_ORDER, dtype=torch.float64) - 2
    return torch.linalg.inv(torch.vander(nodes, increasing=True)).contiguous().to(device)


def _stencil(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Node indices, interpolation weights and their derivatives, each (..., 6)."""
    position = q / _STEP + _MARGIN
    left = position.floor().clamp_(min=2, max=_N_NODES - 4)
    fraction = position - left
    powers = [torch.ones_like(fraction)]
    for _ in range(_ORDER - 1):
        powers.append(powers[-1] * fraction)
    slopes = [torch.zeros_like(fraction)] + [n * powers[n - 1] for n in range(1, _ORDER)]
    coefficients = _lagrange_coefficients(q.device)
    weights = torch.stack(powers, dim=-1) @ coefficients
    derivatives = torch.stack(slopes, dim=-1) @ coefficients / _STEP
    offsets = torch.arange(_ORDER, device=q.device) - 2
    # NaN has no node; its weights are NaN, and so is the loss, which ends a run in words.
    nodes = left.nan_to_num(nan=2.0).long()
    return nodes.unsqueeze(-1) + offsets, weights, derivatives


def _spread(index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The mean of unit masses at n points a row, on the grid: (rows, nodes)."""
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
    """The derivative (rows, n) of what a grid holds, at the points of a stencil."""
    read = field.gather(1, index.flatten(1)).view_as(derivatives)
    return (read * derivatives).sum(-1)


def interval_mmd(p: torch.Tensor, u: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """MMD (B,) for two classes, from the probabilities p (B, K) and u (M,) of the first one."""
    n_p, n_u = p.shape[1], len(u)

    def pairs_of(p: torch.Tensor, start: int, stop: int) -> list[_Pair]:
        index, weights, derivatives = _stencil(p[start:stop].double())
        index_u, weights_u, _ = _stencil(u.double()[None])
        spectrum = _circulant_spectrum(gamma[start:stop].double())
        mass_p, mass_u = _spread(index, weights), _spread(index_u, weights_u)
        field_p, field_u = _convolve(spectrum, mass_p), _convolve(spectrum, mass_u)
        within_p, within_u = (field_p * mass_p).sum(1), (field_u * mass_u).sum(1)
        values = combine_means(within_p, (field_u * mass_p).sum(1), within_u, n_p, n_u)
        field = (n_p / (n_p - 1) * field_p - field_u) * (2.0 / n_p)
        return [(values.to(p.dtype), _slopes(field, index, derivatives).to(p.dtype))]

    return _InClosedForm.apply(p, pairs_of, len(p) * _N_NODES)


def _uniform_field(
    gamma: torch.Tensor, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    r"""Closed forms of E_u k(p, u) at points p (rows, n), of its derivative, and of E k(u, u').

    With :math:`c = \gamma / \sqrt 2`, :math:`E_u k = c \sqrt{\pi / 2} [erf((1 - p) / c \sqrt 2)
    + erf(p / c \sqrt 2)]`; its mean over p follows by integrating erf.
    """
    root = math.sqrt(math.pi)
    width = torch.stack([gamma * 2.0**exponent for exponent in BANDWIDTH_EXPONENTS])  # c sqrt(2)
    mean = root * width * (1 / width).erf() + width.square() * torch.expm1(-1 / width.square())
    below, above = p / width[..., None], (1 - p) / width[..., None]
    field = 0.5 * root * width[..., None] * (above.erf() + below.erf())
    slope = torch.exp(-below.square()) - torch.exp(-above.square())
    return field.sum(0), slope.sum(0), mean.sum(0)


def _within_on_grid(p: torch.Tensor, gamma: torch.Tensor) -> _Pair:
    """The kernel's mean (B,) over pairs of p (B, K), and K / 2 times its derivative by p."""
    index, weights, derivatives = _stencil(p)
    mass = _spread(index, weights)
    field = _convolve(_circulant_spectrum(gamma), mass)
    return (field * mass).sum(1), _slopes(field, index, derivatives)


def _within_by_pairs(p: torch.Tensor, gamma: torch.Tensor) -> _Pair:
    """The same at any bandwidth."""
    apart = p[:, :, None] - p[:, None, :]
    kernel, slope = kernel_and_slope(2.0 * apart.square(), gamma[:, None, None])
    return kernel.mean((1, 2)), 4.0 * (slope * apart).mean(2)


def closed_form_mmd(p: torch.Tensor, gamma: torch.Tensor, *, on_grid: bool = True) -> torch.Tensor:
    """MMD (B,) of p (B, K) to the uniform law itself; off the grid at any bandwidth."""
    n_p = p.shape[1]
    on_grid &= n_p > _FEW_POINTS
    within = _within_on_grid if on_grid else _within_by_pairs

    def pair_of(points: torch.Tensor, widths: torch.Tensor) -> _Pair:
        within_p, slope_p = within(points, widths)
        field, slope_u, within_u = _uniform_field(widths, points)
        values = combine_means(within_p, field.mean(1), within_u, n_p, None)
        slopes = (n_p / (n_p - 1) * slope_p - slope_u) * (2.0 / n_p)
        return values.to(p.dtype), slopes.to(p.dtype)

    def pairs_of(p: torch.Tensor, start: int, stop: int) -> list[_Pair]:
        groups = [slice(start, stop)] if on_grid else _groups(start, stop, n_p)
        return [pair_of(p[group].double(), gamma[group].double()) for group in groups]

    n_numbers = len(p) * (_N_NODES if on_grid else n_p**2)
    return _InClosedForm.apply(p, pairs_of, n_numbers)


def interval_serves(gamma: torch.Tensor, n_p: int, n_u: int) -> bool:
    """Whether the bandwidths are large enough for an error below 1e-6."""
    if gamma.device.type == "cpu":
        return float(gamma.min()) >= _SMALLEST_BANDWIDTH
    # To look would be to wait for the device.
    return n_u >= max(n_p, _ENOUGH_REFERENCES)


def interval_median(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Lower median (B,) of the distances among p (B, K) and u (M,), by counting without pairs.

    In a sorted row the pairs closer than t are counted by one binary search a point; halving
    the bracket of t finds the order statistic, to 3e-5 of the largest distance.
    """
    # A binary search takes the time of some numbers.
    n_numbers = 3 * _N_HALVINGS * p.numel()
    return torch.cat(
        run_on_threads(len(p), lambda start, stop: _medians(p[start:stop], u), n_numbers)
    )


def _medians(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    rows = p.shape[0]
    points = torch.cat([p, u.expand(rows, -1)], dim=1).sort(dim=1).values
    n = points.shape[1]
    # Positions found count each point itself and all before it: n (n + 1) / 2 in all.
    target = (n * (n - 1) // 2 - 1) // 2 + 1 + n * (n + 1) // 2
    step = 0.5 * (points[:, -1:] - points[:, :1])
    low = torch.zeros_like(step)
    for _ in range(_N_HALVINGS):
        middle = low + step
        counts = torch.searchsorted(points, points + middle, right=True).sum(1, keepdim=True)
        low = torch.where(counts < target, middle, low)
        step = 0.5 * step
    return ((low + step) * math.sqrt(2.0)).squeeze(1).clamp_(min=_MIN_BANDWIDTH)
