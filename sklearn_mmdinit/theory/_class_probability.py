"""Theorem 2: the share of inputs that a network gives to a class."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ._checks import Array, finite

__all__ = ["class_probability_lower_bound", "mean_vertex_distances"]

# Rows of probabilities in float32 sum to 1 within a few units of the last place per class.
_SUM_TOLERANCE = 1e-4


def mean_vertex_distances(probabilities: ArrayLike) -> Array:
    r"""Mean distance of predictions to each vertex of the simplex.

    The quantity of Theorem 2: :math:`E_x \|v^{(i)} - f(x)\|` for each class i, from the
    predictions of one network, that is for one perturbation.

    Parameters
    ----------
    probabilities : array-like of shape (n, d)
        One row of class probabilities an input.

    Returns
    -------
    ndarray of shape (d,)
        The mean over the inputs, between 0 and sqrt(2).

    Raises
    ------
    ValueError
        If `probabilities` are not rows on the simplex, or there is none.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import mean_vertex_distances
    >>> print(mean_vertex_distances([[1.0, 0.0], [0.5, 0.5]]).round(4))
    [0.3536 1.0607]
    """
    rows = finite("probabilities", probabilities)
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2:
        raise ValueError(
            "probabilities must have shape (n, d) with n >= 1 inputs and d >= 2 classes, "
            f"got {rows.shape}"
        )
    sums = rows.sum(axis=1)
    if rows.min() < 0 or np.abs(sums - 1.0).max() > _SUM_TOLERANCE:
        raise ValueError(
            "probabilities must not be negative and each row must sum to 1; smallest value "
            f"{rows.min()}, row sums from {sums.min()} to {sums.max()}"
        )
    # ||v_i - f||^2 = sum_j f_j^2 - f_i^2 + (1 - f_i)^2, free of cancellation near the vertex.
    vertices = np.eye(rows.shape[1])
    return np.stack([np.linalg.norm(rows - vertex, axis=1).mean() for vertex in vertices])


def class_probability_lower_bound(mean_distance: ArrayLike, n_classes: int) -> Array:
    r"""Theorem 2: lower bound of the share of inputs that a network gives to a class.

    .. math:: P_x(f(x) \in A_i) \ge 1 - \sqrt{d} \; E_x \|v^{(i)} - f(x)\|,

    where :math:`A_i` holds the predictions whose i-th entry is the largest and :math:`v^{(i)}`
    is the i-th vertex of the simplex. A mean distance below :math:`1/\sqrt{d}` therefore rules
    out that the class is never predicted, which is what the softmax degeneracy loss asks for.

    Parameters
    ----------
    mean_distance : float or array-like of float
        Mean distance of the predictions to the vertex, between 0 and sqrt(2), for example from
        :func:`mean_vertex_distances`.
    n_classes : int
        Number of classes d, at least 2.

    Returns
    -------
    ndarray of the shape of `mean_distance`
        The lower bound, cut off at 0, where the theorem says nothing.

    Raises
    ------
    ValueError
        If a distance is outside [0, sqrt(2)] or `n_classes` is below 2.

    References
    ----------
    Lee and Cho, arXiv 2302.04369, Theorem 2.

    Examples
    --------
    >>> from sklearn_mmdinit.theory import class_probability_lower_bound
    >>> print(class_probability_lower_bound([0.1, 0.5, 1.0], n_classes=2).round(3))
    [0.859 0.293 0.   ]
    """
    if n_classes < 2:
        raise ValueError(f"n_classes={n_classes!r} must be at least 2")
    distance = finite("mean_distance", mean_distance)
    # No two points of the simplex are further apart than two vertices; 1e-6 is for float32.
    if (distance < 0).any() or (distance > math.sqrt(2.0) + 1e-6).any():
        raise ValueError(
            "mean_distance must lie in [0, sqrt(2)], "
            f"got values from {distance.min()} to {distance.max()}"
        )
    return np.maximum(1.0 - math.sqrt(n_classes) * distance, 0.0)
