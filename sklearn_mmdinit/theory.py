"""The paper's three theorems as functions.

Theorem numbers and symbols are those of Lee and Cho, "Unsupervised Learning of
Initialization in Deep Neural Networks via Maximum Mean Discrepancy", arXiv 2302.04369.

- Theorem 1: a Gaussian perturbation of the parameters stays near them.
- Theorem 2: if predictions are near a vertex of the simplex on average, some inputs get its class.
- Theorem 3: under He initialization the rows of a layer's Jacobian have a norm near 1.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import poch
from scipy.stats import binom

from ._base import validation as checks
from ._base.validation import check_argument, finite_array, integers
from .theta0 import Architecture

__all__ = [
    "JacobianRowNormMoments",
    "class_probability_lower_bound",
    "jacobian_row_norm_moments",
    "mean_vertex_distances",
    "perturbation_norm_tail_bound",
    "perturbation_std",
    "relu_jacobian_row_norms",
]


def perturbation_std(
    architecture: Architecture, perturbation_scale: float = math.sqrt(0.5)
) -> np.ndarray:
    r"""Standard deviation of the perturbation of every weight and bias.

    A weight of a layer with :math:`n_{in}` inputs and :math:`n_{out}` outputs is perturbed with
    :math:`\sigma_i = s / \sqrt{n_{in}}`, a bias with :math:`\sigma_i = s / \sqrt{n_{out}}`
    (section 3.3 of the paper). Arrays of batch normalization are not perturbed.

    Parameters
    ----------
    architecture : Architecture
        The description of a multi-layer perceptron.
    perturbation_scale : float, default=math.sqrt(0.5)
        The paper's s, above 0.

    Returns
    -------
    ndarray of shape (m,)
        Standard deviation of each parameter: layer by layer, weights before biases.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture
    >>> from sklearn_mmdinit.theory import perturbation_std
    >>> std = perturbation_std(Architecture.of_perceptron(4, (2,), 2), perturbation_scale=1.0)
    >>> std.shape
    (16,)
    >>> print(std[:10].round(3))
    [0.5   0.5   0.5   0.5   0.5   0.5   0.5   0.5   0.707 0.707]
    """
    check_argument("perturbation_scale", perturbation_scale, checks.POSITIVE)
    check_argument("architecture", architecture, Architecture)
    if not architecture.is_perceptron:
        raise ValueError(f"architecture must be of a perceptron, got that of {architecture.module}")
    shape = architecture.keywords
    widths = (shape["n_features"], *shape["hidden_layer_sizes"], shape["n_classes"])
    pieces = []
    for n_in, n_out in pairwise(widths):
        pieces.append(np.full(n_in * n_out, perturbation_scale / math.sqrt(n_in)))
        pieces.append(np.full(n_out, perturbation_scale / math.sqrt(n_out)))
    return np.concatenate(pieces)


def perturbation_norm_tail_bound(
    radius: ArrayLike, std: ArrayLike, *, form: str = "theorem"
) -> np.ndarray:
    r"""Upper bound of the probability that a perturbation leaves a ball (Theorem 1).

    For :math:`\epsilon \sim N(0, \mathrm{diag}(\sigma_1^2, \dots, \sigma_m^2))` and
    :math:`\alpha_* = \max_i \sigma_i^2`,

    .. math:: P(\|\epsilon\| \ge r) \le \exp(-\tfrac18 \min\{\eta^2, m \eta\}),
              \quad \eta = \frac{r^2}{m \alpha_*} - 1, \quad r^2 > m \alpha_*.

    The proof passes through a sharper bound, ``form="sub_exponential"``: with
    :math:`\sigma_*^2 = \sum_i \sigma_i^2` and :math:`\nu_*^2 = \sum_i \sigma_i^4`,

    .. math:: P(\|\epsilon\| \ge r) \le \exp(-\tfrac18 \min\{
              (r^2 - \sigma_*^2)^2 / \nu_*^2,\; (r^2 - \sigma_*^2) / \alpha_*\}),
              \quad r^2 > \sigma_*^2.

    This bound is never above the theorem's and holds for smaller radii. It is much lower for a
    large network: with equal :math:`\sigma_i` its first term is :math:`m \eta^2`, not
    :math:`\eta^2`.

    Parameters
    ----------
    radius : float or array-like of float
        The radius r of the ball, in the units of the parameters.
    std : array-like of shape (m,)
        Standard deviation of each coordinate, not negative and not all zero; for a network, use
        :func:`perturbation_std`.
    form : {"theorem", "sub_exponential"}, default="theorem"
        The bound of Theorem 1, or the sharper one of its proof.

    Returns
    -------
    ndarray of the shape of `radius`
        Upper bound of the probability, at most 1. May underflow to 0.

    Examples
    --------
    >>> from sklearn_mmdinit import Architecture
    >>> from sklearn_mmdinit.theory import perturbation_norm_tail_bound, perturbation_std
    >>> std = perturbation_std(Architecture.of_perceptron(784, (392, 392, 392), 2))
    >>> radius = 1.1 * (std.size * std.max() ** 2) ** 0.5
    >>> print(f"{radius:.0f} {perturbation_norm_tail_bound(radius, std):.3f}")
    432 0.995
    """
    check_argument("form", form, checks.one_of(("theorem", "sub_exponential")))
    deviations = finite_array("std", std)
    if deviations.ndim != 1 or deviations.size == 0:
        raise ValueError(f"std must be a vector of one or more values, got shape {np.shape(std)}")
    largest = deviations.max()
    if deviations.min() < 0 or largest == 0:
        raise ValueError(f"std must be >= 0 and not all zero, got {deviations.min()} to {largest}")
    # The bounds depend only on ratios. All are divided by the largest deviation, so that no square
    # under- or overflows.
    variances = np.square(deviations / largest)  # alpha_* is 1
    m, total = deviations.size, variances.sum()
    least, name = (m, "m * max(std**2)") if form == "theorem" else (total, "sum(std**2)")
    radii, limit = finite_array("radius", radius), math.sqrt(least) * largest
    if (radii <= limit).any():
        valid = f"{form=} holds above sqrt({name}) = {limit}"
        raise ValueError(f"radius={radii.min()} is too small: {valid}")
    squared = np.square(radii / largest)
    if form == "theorem":
        eta = squared / m - 1.0
        exponent = np.minimum(eta**2, m * eta)
    else:
        excess = squared - total
        exponent = np.minimum(excess**2 / np.square(variances).sum(), excess)
    return np.exp(-exponent / 8.0)


def mean_vertex_distances(probabilities: ArrayLike) -> np.ndarray:
    r"""Mean distance of predictions to each vertex of the simplex.

    This is :math:`E_x \|v^{(i)} - f(x)\|` of Theorem 2 for each class i, from the predictions of
    one perturbed network.

    Parameters
    ----------
    probabilities : array-like of shape (n, d)
        Class probabilities of each input.

    Returns
    -------
    ndarray of shape (d,)
        Mean over the inputs, between 0 and sqrt(2).

    Examples
    --------
    >>> from sklearn_mmdinit.theory import mean_vertex_distances
    >>> print(mean_vertex_distances([[1.0, 0.0], [0.5, 0.5]]).round(4))
    [0.3536 1.0607]
    """
    rows = finite_array("probabilities", probabilities)
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise ValueError(f"probabilities must be (n >= 1, d >= 2) numbers, got {rows.shape}")
    sums = rows.sum(axis=1)
    # Sums over many classes in float32 differ from 1 by rounding errors.
    if rows.min() < 0 or np.abs(sums - 1.0).max() > 1e-4:
        got = f"{rows.min()} and sums from {sums.min()} to {sums.max()}"
        raise ValueError(f"rows of probabilities must be >= 0 and sum to 1, got {got}")
    vertices = np.eye(rows.shape[1])
    return np.stack([np.linalg.norm(rows - vertex, axis=1).mean() for vertex in vertices])


def class_probability_lower_bound(mean_distance: ArrayLike, n_classes: int) -> np.ndarray:
    r"""Lower bound of the share of inputs that a network assigns to a class (Theorem 2).

    .. math:: P_x(f(x) \in A_i) \ge 1 - \sqrt{d} \; E_x \|v^{(i)} - f(x)\|,

    where :math:`A_i` holds the predictions whose i-th entry is the largest and :math:`v^{(i)}`
    is the i-th vertex of the simplex. If the mean distance is below :math:`1/\sqrt{d}`, the class
    is therefore predicted for some input, which is the purpose of the softmax degeneracy loss.

    Parameters
    ----------
    mean_distance : float or array-like of float
        Mean distance of the predictions to the vertex: see :func:`mean_vertex_distances`.
    n_classes : int
        Number of classes d, at least 2.

    Returns
    -------
    ndarray of the shape of `mean_distance`
        The lower bound; 0 if the theorem's bound is negative.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import class_probability_lower_bound
    >>> print(class_probability_lower_bound([0.1, 0.5, 1.0], n_classes=2).round(3))
    [0.859 0.293 0.   ]
    """
    check_argument("n_classes", n_classes, integers(2))
    distance = finite_array("mean_distance", mean_distance)
    # Two vertices are the furthest points of the simplex; 1e-6 allows for float32.
    if wrong := [d for d in distance.flat if not 0 <= d <= math.sqrt(2.0) + 1e-6]:
        raise ValueError(f"mean_distance must lie in [0, sqrt(2)], got {wrong[0]}")
    return np.maximum(1.0 - math.sqrt(n_classes) * distance, 0.0)


def relu_jacobian_row_norms(weight: ArrayLike, pre_activations: ArrayLike) -> np.ndarray:
    r"""Norm of each row of the Jacobian of one layer, :math:`x \mapsto W \mathrm{ReLU}(x) + b`.

    This is the right-hand side of Theorem 3, :math:`\|W_{k \cdot} \odot 1(x > 0)\|`, for each
    output k.

    Parameters
    ----------
    weight : array-like of shape (n_out, n_in)
        The weight matrix W, oriented as PyTorch's.
    pre_activations : array-like of shape (n, n_in)
        Inputs x of the ReLU, one row for each example.

    Returns
    -------
    ndarray of shape (n, n_out)
        Norm for each example and output.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import relu_jacobian_row_norms
    >>> print(relu_jacobian_row_norms([[3.0, 4.0]], [[1.0, 2.0], [1.0, -2.0]]))
    [[5.]
     [3.]]
    """
    matrix = finite_array("weight", weight)
    inputs = finite_array("pre_activations", pre_activations)
    if matrix.ndim != 2 or inputs.ndim != 2 or matrix.shape[1] != inputs.shape[1]:
        shapes = f"{matrix.shape} and {inputs.shape}"
        raise ValueError(f"weight and pre_activations must have equally many columns, got {shapes}")
    return np.sqrt((inputs > 0).astype(np.float64) @ np.square(matrix).T)


class JacobianRowNormMoments(NamedTuple):
    """Mean and variance of the norm of a Jacobian row, and of its square.

    Parameters
    ----------
    squared_mean, squared_variance, mean, variance : float
        Mean and variance of the squared norm, and of the norm.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import jacobian_row_norm_moments
    >>> jacobian_row_norm_moments(2).squared_variance
    2.5
    """

    squared_mean: float
    squared_variance: float
    mean: float
    variance: float


def jacobian_row_norm_moments(n_in: int, weight_std: float | None = None) -> JacobianRowNormMoments:
    r"""Moments of the norm of one layer's Jacobian row (Theorem 3, at finite width).

    Theorem 3 says that :math:`\|J^{(k)}\| \approx 1` for sufficiently large :math:`n_{in}` when
    weights are drawn from :math:`N(0, \sigma^2)` with :math:`\sigma^2 = 2 / n_{in}` (He et al.,
    2015). The squared norm is a sum of :math:`n_{in}` independent terms
    :math:`w^2 b`, :math:`b \sim \mathrm{Bernoulli}(1/2)`, with :math:`E[w^2 b] = \sigma^2 / 2` and
    :math:`E[w^4 b] = 3 \sigma^4 / 2`, so that

    .. math:: E\|J^{(k)}\|^2 = n_{in} \sigma^2 / 2, \qquad
              \mathrm{Var}\|J^{(k)}\|^2 = 5 n_{in} \sigma^4 / 4,

    which is 1 and :math:`5 / n_{in}` for He initialization. If N units are active, the squared norm
    is :math:`\sigma^2 \chi^2_N`. The mean of the norm itself is the binomial sum over N of
    :math:`\sigma \sqrt2\, \Gamma((N + 1)/2) / \Gamma(N/2)`, computed exactly.

    Parameters
    ----------
    n_in : int
        Width of the layer's input, at least 1.
    weight_std : float or None, default=None
        Standard deviation of the weights; None is He's sqrt(2 / n_in).

    Returns
    -------
    JacobianRowNormMoments

    Examples
    --------
    >>> from sklearn_mmdinit.theory import jacobian_row_norm_moments
    >>> moments = jacobian_row_norm_moments(392)
    >>> print(f"{moments.squared_mean:.3f} {moments.mean:.4f} {moments.variance ** 0.5:.4f}")
    1.000 0.9984 0.0565
    """
    check_argument("n_in", n_in, integers(1))
    check_argument("weight_std", weight_std, None, checks.POSITIVE)
    std = math.sqrt(2.0 / n_in) if weight_std is None else weight_std
    squared_mean = n_in * std**2 / 2.0
    n_active = np.arange(n_in + 1)
    norms = np.zeros(n_in + 1)  # mean norm for each number of active units, by a ratio of Gammas
    norms[1:] = 2.0 * poch(n_active[1:] / 2.0, 0.5) / math.sqrt(n_in)
    # Sums 1 - norm term by term. For wide layers the mean is near 1, so 1 - mean would lose digits.
    below = float(np.sum(binom.pmf(n_active, n_in, 0.5) * (1.0 - norms)))
    return JacobianRowNormMoments(
        squared_mean=squared_mean,
        squared_variance=1.25 * n_in * std**4,
        mean=math.sqrt(squared_mean) * (1.0 - below),
        variance=squared_mean * below * (2.0 - below),
    )
