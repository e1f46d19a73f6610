"""The paper's three theorems as functions.

Theorem numbers and symbols are those of Lee and Cho, "Unsupervised Learning of Initialization in
Deep Neural Networks via Maximum Mean Discrepancy", arXiv 2302.04369.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.special import poch
from scipy.stats import binom


def perturbation_std(
    widths: Sequence[int], perturbation_scale: float = math.sqrt(0.5)
) -> np.ndarray:
    """Standard deviation (m,) of the perturbation of each parameter of a perceptron.

    It is s / sqrt(n_in) for a weight and s / sqrt(n_out) for a bias, layer by layer. ``widths`` are
    those of the input, of the hidden layers and of the logits.
    """
    pieces = []
    for n_in, n_out in pairwise(widths):
        pieces.append(np.full(n_in * n_out, perturbation_scale / math.sqrt(n_in)))
        pieces.append(np.full(n_out, perturbation_scale / math.sqrt(n_out)))
    return np.concatenate(pieces)


def perturbation_norm_tail_bound(
    radius: np.ndarray, std: np.ndarray, form: str = "theorem"
) -> np.ndarray:
    r"""Upper bound of the probability that a perturbation leaves a ball (Theorem 1).

    For :math:`\epsilon \sim N(0, \mathrm{diag}(\sigma_i^2))`, :math:`\alpha_* = \max \sigma_i^2`
    and :math:`\eta = r^2 / (m \alpha_*) - 1`, where :math:`r^2 > m \alpha_*`, the theorem is
    :math:`P(\|\epsilon\| \ge r) \le \exp(-\min\{\eta^2, m \eta\} / 8)`. Its proof passes through
    a bound that is never above it and holds for smaller radii, ``form="sub_exponential"``: with
    :math:`\sigma_*^2 = \sum_i \sigma_i^2 < r^2` and :math:`\nu_*^2 = \sum_i \sigma_i^4` it has
    :math:`\min\{(r^2 - \sigma_*^2)^2 / \nu_*^2, (r^2 - \sigma_*^2) / \alpha_*\}` in its place. The
    result has the shape of `radius`, the r, and may underflow to 0.
    """
    variances, squared = np.square(std), np.square(radius)
    m, total, largest = std.size, variances.sum(), variances.max()
    least = {"theorem": m * largest, "sub_exponential": total}[form]
    if (squared <= least).any():
        raise ValueError(f"{form=} holds above the radius {math.sqrt(least)}")
    if form == "theorem":
        eta = squared / least - 1.0
        exponent = np.minimum(eta**2, m * eta)
    else:
        excess = squared - total
        exponent = np.minimum(excess**2 / np.square(variances).sum(), excess / largest)
    return np.exp(-exponent / 8.0)


def mean_vertex_distances(probabilities: np.ndarray) -> np.ndarray:
    r"""Mean distance (d,) of predictions (n, d) of one network to each vertex of the simplex.

    This is :math:`E_x \|v^{(i)} - f(x)\|` of Theorem 2 for each class i.
    """
    vertices = np.eye(probabilities.shape[1])
    rows = probabilities.astype(np.float64)
    return np.stack([np.linalg.norm(rows - vertex, axis=1).mean() for vertex in vertices])


def class_probability_lower_bound(mean_distance: np.ndarray, n_classes: int) -> np.ndarray:
    r"""Lower bound of the share of inputs that a network assigns to a class (Theorem 2).

    It is :math:`1 - \sqrt{d} \, E_x \|v^{(i)} - f(x)\|`, or 0 if that is negative: a class whose
    mean distance is below :math:`1/\sqrt{d}` is predicted for some input.
    """
    return np.maximum(1.0 - math.sqrt(n_classes) * mean_distance, 0.0)


def relu_jacobian_row_norms(weight: np.ndarray, pre_activations: np.ndarray) -> np.ndarray:
    r"""Norms (n, n_out) of the rows of the Jacobian of :math:`x \mapsto W \mathrm{ReLU}(x) + b`.

    This is the right-hand side of Theorem 3, :math:`\|W_{k \cdot} \odot 1(x > 0)\|`, for each
    output k. W is ``weight`` (n_out, n_in), and ``pre_activations`` (n, n_in) are the inputs x.
    """
    return np.sqrt((pre_activations > 0).astype(np.float64) @ np.square(weight).T)


def jacobian_row_norm_mean(n_in: int) -> float:
    r"""Mean norm of one layer's Jacobian row (Theorem 3, at finite width); its mean square is 1.

    If N units are active, the squared norm is :math:`\sigma^2 \chi^2_N`, :math:`\sigma^2 = 2 /
    n_{in}`, and the mean of the norm is the binomial sum over N of :math:`\sigma \sqrt2\,
    \Gamma((N + 1)/2) / \Gamma(N/2)`.
    """
    n_active = np.arange(1, n_in + 1)
    norms = 2.0 * poch(n_active / 2.0, 0.5) / math.sqrt(n_in)  # poch is the ratio of Gammas
    return float(binom.pmf(n_active, n_in, 0.5) @ norms)
