"""The paper's three theorems as functions.

Theorem numbers and symbols are those of Lee and Cho, "Unsupervised Learning of
Initialization in Deep Neural Networks via Maximum Mean Discrepancy", arXiv 2302.04369.

- Theorem 1: a Gaussian perturbation of the parameters stays near them
  (:func:`perturbation_std`, :func:`perturbation_norm_tail_bound`).
- Theorem 2: predictions near a vertex of the simplex give a class its share of the inputs
  (:func:`mean_vertex_distances`, :func:`class_probability_lower_bound`).
- Theorem 3: under He initialization the rows of a layer's Jacobian have a norm near 1
  (:func:`relu_jacobian_row_norms`, :func:`jacobian_row_norm_moments`).
"""

from ._class_probability import class_probability_lower_bound, mean_vertex_distances
from ._jacobian_norm import (
    JacobianRowNormMoments,
    jacobian_row_norm_moments,
    relu_jacobian_row_norms,
)
from ._perturbation_norm import perturbation_norm_tail_bound, perturbation_std

__all__ = [
    "JacobianRowNormMoments",
    "class_probability_lower_bound",
    "jacobian_row_norm_moments",
    "mean_vertex_distances",
    "perturbation_norm_tail_bound",
    "perturbation_std",
    "relu_jacobian_row_norms",
]
