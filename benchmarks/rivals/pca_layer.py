"""A first layer of principal components: unit 2 k sees component k, unit 2 k + 1 its negative.

After ReLU a pair of such units keeps all of its component, of either sign. The weights together
have the variance of the fresh weights in whose place they are, so that a fine-tuning made for
those fits; biases are 0 as theirs are.
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

from rivals.fresh import Arrays, weight_name

__all__ = ["components_of", "with_components"]


def components_of(X: np.ndarray, n_units: int) -> np.ndarray:
    """Leading principal components for a layer of so many units.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Unlabelled rows.
    n_units : int
        Width of the layer; two units share a component.

    Returns
    -------
    components : ndarray, shape (n_components, n_features)
        Orthonormal rows, the one of most variance first. ``ceil(n_units / 2)`` of them, or as
        many as the rows have.
    """
    n_components = min((n_units + 1) // 2, *X.shape)
    return PCA(n_components, svd_solver="covariance_eigh").fit(X).components_


def with_components(fresh: Arrays, components: np.ndarray) -> Arrays:
    """Fresh arrays whose first layer has the components, each twice, once with a minus.

    Parameters
    ----------
    fresh : dict of str to ndarray
        The fresh network. Units beyond twice the number of components stay as they are there,
        and so do all other layers.
    components : ndarray, shape (n_components, n_features)
        Orthonormal rows.
    """
    weight = fresh[weight_name(0)].astype(np.float64)
    pairs = np.stack([components, -components], axis=1).reshape(-1, components.shape[1])
    pairs = pairs[: len(weight)]
    # Orthonormal rows have mean square 1 / n_features.
    pairs = pairs * np.sqrt(np.mean(weight**2) * components.shape[1])
    weight[: len(pairs)] = pairs
    return fresh | {weight_name(0): weight.astype(np.float32)}
