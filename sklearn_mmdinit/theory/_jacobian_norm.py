"""Theorem 3: the norm of a row of one layer's Jacobian."""

from __future__ import annotations

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln
from scipy.stats import binom
from sklearn.utils import check_scalar

from ._checks import Array, finite

__all__ = ["JacobianRowNormMoments", "jacobian_row_norm_moments", "relu_jacobian_row_norms"]

# From here on the series of a ratio of Gammas is exact in float64.
_WIDE = 200.0


def relu_jacobian_row_norms(weight: ArrayLike, pre_activations: ArrayLike) -> Array:
    r"""Norm of each row of the Jacobian of one layer, :math:`x \mapsto W \mathrm{ReLU}(x) + b`.

    The right-hand side of the equation in Theorem 3,
    :math:`\|W_{k \cdot} \odot 1(x > 0)\|` for each output k.

    Parameters
    ----------
    weight : array-like of shape (n_out, n_in)
        The weight matrix W, in PyTorch's orientation.
    pre_activations : array-like of shape (n, n_in)
        Inputs x of the ReLU, one row an example.

    Returns
    -------
    ndarray of shape (n, n_out)
        The norm for each example and output.

    Raises
    ------
    ValueError
        If the two are not matrices with the same number of columns.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import relu_jacobian_row_norms
    >>> print(relu_jacobian_row_norms([[3.0, 4.0]], [[1.0, 2.0], [1.0, -2.0]]))
    [[5.]
     [3.]]
    """
    matrix, inputs = finite("weight", weight), finite("pre_activations", pre_activations)
    if matrix.ndim != 2 or inputs.ndim != 2 or matrix.shape[1] != inputs.shape[1]:
        raise ValueError(
            "weight (n_out, n_in) and pre_activations (n, n_in) must be matrices with the same "
            f"n_in, got shapes {matrix.shape} and {inputs.shape}"
        )
    return np.sqrt((inputs > 0).astype(np.float64) @ np.square(matrix).T)


class JacobianRowNormMoments(NamedTuple):
    """Mean and variance of the norm of a Jacobian row, and of its square.

    Parameters
    ----------
    squared_mean : float
        Mean of the squared norm.
    squared_variance : float
        Variance of the squared norm.
    mean : float
        Mean of the norm.
    variance : float
        Variance of the norm.
    """

    squared_mean: float
    squared_variance: float
    mean: float
    variance: float


def jacobian_row_norm_moments(n_in: int, weight_std: float | None = None) -> JacobianRowNormMoments:
    r"""Theorem 3 at finite width: moments of the norm of one layer's Jacobian row.

    Theorem 3 says that :math:`\|J^{(k)}\| \approx 1` for sufficiently large :math:`n_{in}` when
    weights are drawn from :math:`N(0, \sigma^2)` with He's :math:`\sigma^2 = 2 / n_{in}`. Here
    is how near. The squared norm is a sum of :math:`n_{in}` independent terms :math:`w^2 b`,
    :math:`b \sim \mathrm{Bernoulli}(1/2)`, with :math:`E[w^2 b] = \sigma^2 / 2` and
    :math:`E[w^4 b] = 3 \sigma^4 / 2`, so that

    .. math:: E\|J^{(k)}\|^2 = n_{in} \sigma^2 / 2, \qquad
              \mathrm{Var}\|J^{(k)}\|^2 = 5 n_{in} \sigma^4 / 4,

    which is 1 and :math:`5 / n_{in}` under He. Given the number N of open units the squared norm
    is :math:`\sigma^2 \chi^2_N`, and the mean of the norm itself is the exact binomial sum over N
    of :math:`\sigma \sqrt2\, \Gamma((N + 1)/2) / \Gamma(N/2)`.

    Parameters
    ----------
    n_in : int
        Width of the layer's input, at least 1.
    weight_std : float or None, default=None
        Standard deviation of the weights. None stands for He's sqrt(2 / n_in).

    Returns
    -------
    JacobianRowNormMoments
        `squared_mean`, `squared_variance`, `mean` and `variance`.

    Raises
    ------
    ValueError
        If `n_in` is below 1 or `weight_std` is not a positive finite number.
    TypeError
        If `n_in` is no integer.

    References
    ----------
    Lee and Cho, arXiv 2302.04369, Theorem 3; He et al., 2015, "Delving Deep into Rectifiers".

    Examples
    --------
    >>> from sklearn_mmdinit.theory import jacobian_row_norm_moments
    >>> moments = jacobian_row_norm_moments(392)
    >>> print(f"{moments.squared_mean:.3f} {moments.mean:.4f} {moments.variance ** 0.5:.4f}")
    1.000 0.9984 0.0565
    """
    check_scalar(n_in, "n_in", Integral, min_val=1)
    std = math.sqrt(2.0 / n_in) if weight_std is None else weight_std
    if not (math.isfinite(std) and std > 0):
        raise ValueError(f"weight_std={weight_std!r} must be a positive finite number")
    squared_mean = n_in * std**2 / 2.0
    n_open = np.arange(n_in + 1)
    norms = np.zeros(n_in + 1)  # their means given the open units; none adds a norm of 0
    norms[1:] = 2.0 * _gamma_ratio(n_open[1:] / 2.0) / math.sqrt(n_in)
    # Relative to the root of the squared mean: of a wide layer the variance is the small rest.
    below = float(np.sum(binom.pmf(n_open, n_in, 0.5) * (1.0 - norms)))
    return JacobianRowNormMoments(
        squared_mean=squared_mean,
        squared_variance=1.25 * n_in * std**4,
        mean=math.sqrt(squared_mean) * (1.0 - below),
        variance=squared_mean * below * (2.0 - below),
    )


def _gamma_ratio(x: Array) -> Array:
    """Gamma(x + 1/2) / Gamma(x), by its series where logarithms of Gammas lose digits."""
    exact = np.exp(gammaln(np.minimum(x, _WIDE) + 0.5) - gammaln(np.minimum(x, _WIDE)))
    series = 1 - 1 / (8 * x) + 1 / (128 * x**2) + 5 / (1024 * x**3) - 21 / (32768 * x**4)
    return np.where(x < _WIDE, exact, np.sqrt(x) * series)
