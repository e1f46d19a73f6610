"""Theorem 1: how far a Gaussian perturbation moves the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._network import Architecture
from ._checks import Array, finite

__all__ = ["perturbation_norm_tail_bound", "perturbation_std"]


def perturbation_std(
    architecture: Architecture, perturbation_scale: float = math.sqrt(0.5)
) -> Array:
    r"""Standard deviation of the perturbation of every weight and bias.

    A weight of a layer with :math:`n_{in}` inputs and :math:`n_{out}` outputs is perturbed with
    :math:`\sigma_i = s / \sqrt{n_{in}}`, a bias with :math:`\sigma_i = s / \sqrt{n_{out}}`
    (section 3.3 of the paper). The arrays of batch normalisation are not perturbed.

    Parameters
    ----------
    architecture : Architecture
        The network.
    perturbation_scale : float, default=math.sqrt(0.5)
        The paper's s, positive.

    Returns
    -------
    ndarray of shape (m,)
        One standard deviation a parameter: layer by layer, the weights before the biases.

    Raises
    ------
    ValueError
        If `perturbation_scale` is not a positive finite number.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture
    >>> from sklearn_mmdinit.theory import perturbation_std
    >>> std = perturbation_std(Architecture(4, (2,), 2), perturbation_scale=1.0)
    >>> std.shape
    (16,)
    >>> print(std[:10].round(3))
    [0.5   0.5   0.5   0.5   0.5   0.5   0.5   0.5   0.707 0.707]
    """
    if not (math.isfinite(perturbation_scale) and perturbation_scale > 0):
        raise ValueError(
            f"perturbation_scale={perturbation_scale!r} must be a positive finite number"
        )
    pieces = []
    for n_in, n_out in pairwise(architecture.widths):
        pieces.append(np.full(n_in * n_out, perturbation_scale / math.sqrt(n_in)))
        pieces.append(np.full(n_out, perturbation_scale / math.sqrt(n_out)))
    return np.concatenate(pieces)


def _theorem_exponent(squared_radius: Array, variances: Array) -> Array:
    """Eq. (prob_out_of_nbd): min(eta^2, m eta) with eta = r^2 / (m alpha_*) - 1."""
    m, largest = variances.size, variances.max()
    eta = squared_radius / (m * largest) - 1.0
    return np.minimum(eta**2, m * eta)


def _sub_exponential_exponent(squared_radius: Array, variances: Array) -> Array:
    """The proof's bound before it is loosened: nu_*^2 = sum sigma^4, alpha_* = max sigma^2."""
    excess = squared_radius - variances.sum()
    return np.minimum(excess**2 / np.square(variances).sum(), excess / variances.max())


class _TailBound(NamedTuple):
    exponent: Callable[[Array, Array], Array]
    threshold: Callable[[Array], float]  # the bound holds for r^2 above it
    threshold_name: str


_TAIL_BOUNDS = {
    "theorem": _TailBound(_theorem_exponent, lambda v: v.size * v.max(), "m * max(std**2)"),
    "sub_exponential": _TailBound(_sub_exponential_exponent, lambda v: v.sum(), "sum(std**2)"),
}


def perturbation_norm_tail_bound(
    radius: ArrayLike, std: ArrayLike, *, form: str = "theorem"
) -> Array:
    r"""Theorem 1: upper bound of the probability that a perturbation leaves a ball.

    For :math:`\epsilon \sim N(0, \mathrm{diag}(\sigma_1^2, \dots, \sigma_m^2))` and
    :math:`\alpha_* = \max_i \sigma_i^2`,

    .. math:: P(\|\epsilon\| \ge r) \le \exp(-\tfrac18 \min\{\eta^2, m \eta\}),
              \quad \eta = \frac{r^2}{m \alpha_*} - 1, \quad r^2 > m \alpha_*.

    The proof passes through a sharper bound, ``form="sub_exponential"``: with
    :math:`\sigma_*^2 = \sum_i \sigma_i^2` and :math:`\nu_*^2 = \sum_i \sigma_i^4`,

    .. math:: P(\|\epsilon\| \ge r) \le \exp(-\tfrac18 \min\{
              (r^2 - \sigma_*^2)^2 / \nu_*^2,\; (r^2 - \sigma_*^2) / \alpha_*\}),
              \quad r^2 > \sigma_*^2.

    It is never above the theorem's, holds for smaller radii, and tells much more about a large
    network: with equal :math:`\sigma_i` its first term is :math:`m \eta^2` in place of
    :math:`\eta^2`, a factor lost in the step :math:`\nu_*^2 \le \sigma_*^4`.

    Parameters
    ----------
    radius : float or array-like of float
        The radius r of the ball, in the units of the parameters.
    std : array-like of shape (m,)
        Standard deviation of each coordinate, not negative and not all zero; for a network that
        of :func:`perturbation_std`.
    form : {"theorem", "sub_exponential"}, default="theorem"
        The bound that Theorem 1 states, or the sharper one of its proof.

    Returns
    -------
    ndarray of the shape of `radius`
        Upper bound of the probability, at most 1. May underflow to 0.

    Raises
    ------
    ValueError
        If `form` is unknown, `std` is not a vector of standard deviations, or a radius is
        too small for the bound to hold.

    References
    ----------
    Lee and Cho, arXiv 2302.04369, Theorem 1 and its proof in the appendix.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture
    >>> from sklearn_mmdinit.theory import perturbation_norm_tail_bound, perturbation_std
    >>> std = perturbation_std(Architecture(784, (392, 392, 392), 2))
    >>> radius = 1.1 * (std.size * std.max() ** 2) ** 0.5
    >>> print(f"{radius:.0f} {perturbation_norm_tail_bound(radius, std):.3f}")
    432 0.995

    The two output biases set the largest standard deviation here, so the theorem speaks of far
    too large a ball. The proof's bound does not lean on them:

    >>> radius = 1.01 * (std**2).sum() ** 0.5
    >>> bound = perturbation_norm_tail_bound(radius, std, form="sub_exponential")
    >>> print(f"{radius:.1f} {bound:.4f}")
    24.6 0.0026
    """
    if form not in _TAIL_BOUNDS:
        raise ValueError(f"unknown form={form!r}; valid ones are {sorted(_TAIL_BOUNDS)}")
    deviations = finite("std", std)
    if deviations.ndim != 1 or deviations.size == 0:
        raise ValueError(f"std must be a vector of one or more values, got shape {np.shape(std)}")
    if deviations.min() < 0 or deviations.max() == 0:
        raise ValueError(
            "std must hold standard deviations, none negative and not all zero; "
            f"got values from {deviations.min()} to {deviations.max()}"
        )
    # The bounds depend on ratios alone: relative to the largest, no square under- or overflows.
    largest = deviations.max()
    variances = np.square(deviations / largest)
    bound = _TAIL_BOUNDS[form]
    radii = finite("radius", radius)
    smallest = math.sqrt(bound.threshold(variances)) * largest
    if (radii <= smallest).any():
        raise ValueError(
            f"radius={radii.min()} is too small: the bound form={form!r} holds for a radius above "
            f"sqrt({bound.threshold_name}) = {smallest}"
        )
    return np.exp(-bound.exponent(np.square(radii / largest), variances) / 8.0)
