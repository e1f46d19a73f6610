"""A first layer of principal components: unit 2 k sees component k, unit 2 k + 1 its negative.

After ReLU a pair of such units keeps all of its component, of either sign. Biases move the mean
of the rows to 0, and the weights together have the variance of the fresh weights in whose place
they are, so that a fine-tuning made for those fits.
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

from rivals.fresh import Arrays, weight_name

__all__ = ["components_of", "with_components"]


def components_of(X: np.ndarray, n_units: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Leading principal components for a layer of so many units, and the mean of the rows.

    Parameters
    ----------
    X : ndarray, shape (n, n_features)
        Unlabelled rows.
    n_units : int
        Width of the layer; two units share a component.
    seed : int
        scikit-learn asks for one; this solver has no use for it.

    Returns
    -------
    components : ndarray, shape (n_components, n_features)
        Orthonormal rows, the one of most variance first. ``ceil(n_units / 2)`` of them, or as
        many as the rows have.
    mean : ndarray, shape (n_features,)
    """
    n_components = min((n_units + 1) // 2, *X.shape)
    pca = PCA(n_components, svd_solver="covariance_eigh", random_state=seed).fit(X)
    return pca.components_, pca.mean_


def with_components(fresh: Arrays, components: np.ndarray, mean: np.ndarray) -> Arrays:
    """Fresh arrays whose first layer has the components, each twice, once with a minus.

    Parameters
    ----------
    fresh : dict of str to ndarray
        The fresh network. Units beyond twice the number of components stay as they are there,
        and so do all other layers.
    components : ndarray, shape (n_components, n_features)
        Orthonormal rows.
    mean : ndarray, shape (n_features,)
        Of the rows that the network will see.
    """
    weight = fresh[weight_name(0)].astype(np.float64)
    bias = fresh["linears.0.bias"].astype(np.float64)
    pairs = np.stack([components, -components], axis=1).reshape(-1, components.shape[1])
    pairs = pairs[: len(weight)]
    # Orthonormal rows have mean square 1 / n_features.
    pairs = pairs * np.sqrt(np.mean(weight**2) * components.shape[1])
    weight[: len(pairs)] = pairs
    bias[: len(pairs)] = -pairs @ mean
    return fresh | {
        weight_name(0): weight.astype(np.float32),
        "linears.0.bias": bias.astype(np.float32),
    }
