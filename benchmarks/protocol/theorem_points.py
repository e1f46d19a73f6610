"""The paper's three theorems in numbers: what is found, what the theorem says, whether it holds.

Each function measures one case and returns its points, as JSON can hold them. The first theorem
is checked against draws, the second against networks on images, where it holds for the sample
itself, and the third against networks with He's weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sklearn_mmdinit import Architecture, MMDInitializer
from sklearn_mmdinit.diagnostics import prediction_samples
from sklearn_mmdinit.theory import (
    class_probability_lower_bound,
    jacobian_row_norm_moments,
    mean_vertex_distances,
    perturbation_norm_tail_bound,
    perturbation_std,
    relu_jacobian_row_norms,
)

__all__ = ["FORMS", "class_points", "drawn_norms", "jacobian_points", "network_std", "tail_points"]

# The bound that Theorem 1 states, and the sharper one of its proof.
FORMS = ("theorem", "sub_exponential")

# A mean that is right is further off about once in 1,300 comparisons (20 networks: t, 19 df).
N_SIGMA = 4.0

# Float32 probabilities, summed over images.
ROUNDING = 1e-6


def network_std(width: int) -> np.ndarray:
    """The paper's perturbation of 784-w-w-w-2: a standard deviation for each parameter."""
    return perturbation_std(Architecture(784, (width, width, width), 2))


def drawn_norms(std: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Norms (n_draws,) of N(0, diag(std^2)): a sum of one chi-squared number for each value."""
    values, counts = np.unique(std, return_counts=True)
    rng = np.random.default_rng(seed)
    squares = np.zeros(n_draws)
    for value, count in zip(values, counts, strict=True):
        squares += value**2 * rng.chisquare(count, n_draws)
    return np.sqrt(squares)


def _radii(std: np.ndarray, form: str, n_radii: int) -> np.ndarray:
    """Radii along which the bound falls from 0.99 to a millionth, closer where it is large."""
    variances = std**2
    smallest = {"theorem": std.size * variances.max(), "sub_exponential": variances.sum()}[form]
    grid = np.sqrt(smallest) * (1.0 + np.geomspace(1e-7, 100.0, 3000))
    bounds = perturbation_norm_tail_bound(grid, std, form=form)
    wanted = np.linspace(np.sqrt(-np.log(0.99)), np.sqrt(-np.log(1e-6)), n_radii) ** 2
    # Far out it underflows to 0.
    return np.interp(wanted, -np.log(bounds[bounds > 0]), grid[bounds > 0])


def tail_points(std: np.ndarray, *, n_draws: int, n_radii: int, seed: int) -> dict[str, Any]:
    """Theorem 1: how often a perturbation leaves a ball, and the bound of it.

    Parameters
    ----------
    std : ndarray of shape (m,)
        Standard deviation of each parameter.
    n_draws, n_radii : int
        Perturbations, and balls for each form of the bound.
    seed : int
        Of the perturbations.
    """
    norms = drawn_norms(std, n_draws, seed)
    found: dict[str, Any] = {
        "n_parameters": std.size,
        "root_mean_square_norm": float(np.sqrt((std**2).sum())),
        "radius_of_one_percent": float(np.quantile(norms, 0.99)),
        "n_draws": n_draws,
        "forms": {},
    }
    for form in FORMS:
        radii = _radii(std, form, n_radii)
        bounds = perturbation_norm_tail_bound(radii, std, form=form)
        frequencies = np.array([(norms >= radius).mean() for radius in radii])
        found["forms"][form] = {
            "radii": radii.tolist(),
            "bounds": bounds.tolist(),
            "frequencies": frequencies.tolist(),
            "holds": (frequencies <= bounds).tolist(),
        }
    return found


def class_points(
    X: np.ndarray,
    n_classes: int,
    *,
    squared_scales: tuple[float, ...],
    n_networks: int,
    seed: int,
) -> dict[str, Any]:
    """Theorem 2: the share of images that a network gives to a class, and the bound of it.

    A point is a class of a perturbed network. Perturbations of the paper's size leave
    predictions in the middle of the simplex, where the bound is 0; longer ones move them out.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Images.
    n_classes : int
        Classes d of the network.
    squared_scales : tuple of float
        Values of s squared of the perturbations.
    n_networks : int
        Perturbed networks for each of them.
    seed : int
        Of weights and perturbations.
    """
    initializer = MMDInitializer(
        (64, 64), n_classes=n_classes, max_iter=0, device="cpu", random_state=seed
    ).fit(X[:2])
    distances, shares = [], []
    for square in squared_scales:
        predictions = prediction_samples(
            initializer,
            X,
            perturbation_scale=square**0.5,
            n_perturbations=n_networks,
            random_state=seed,
        )
        for probabilities in predictions:
            largest = probabilities == probabilities.max(axis=1, keepdims=True)
            distances.append(mean_vertex_distances(probabilities))
            shares.append(largest.mean(axis=0))
    distance, share = np.ravel(distances), np.ravel(shares)
    bounds = class_probability_lower_bound(distance, n_classes)
    return {
        "n_classes": n_classes,
        "n_images": len(X),
        "distances": distance.round(6).tolist(),
        "shares": share.round(6).tolist(),
        "bounds": bounds.round(6).tolist(),
        "holds": (bounds <= share + ROUNDING).tolist(),
    }


def jacobian_points(
    X: np.ndarray, width: int, *, n_networks: int, n_images: int, seed: int
) -> dict[str, Any]:
    """Theorem 3: norms of the rows of a layer's Jacobian in networks with He's weights.

    The layer is the one behind the first hidden layer, of n inputs and n outputs. Given an image
    its pre-activations are independent and symmetric, as the theorem assumes.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Images.
    width : int
        n.
    n_networks, n_images : int
        Networks, and images in each.
    seed : int
        Of the weights.
    """
    means, squares = [], []
    # Of their own for each width: large errors at one are not those at the next.
    for own in np.random.SeedSequence([seed, width]).generate_state(n_networks):
        network = MMDInitializer(
            (width, width), init="he", max_iter=0, device="cpu", random_state=int(own)
        ).fit(X[:2])
        pre_activations = X[:n_images] @ network.coefs_[0] + network.intercepts_[0]
        norms = relu_jacobian_row_norms(network.coefs_[1].T, pre_activations)
        means.append(norms.mean())
        squares.append((norms**2).mean())
    moments = jacobian_row_norm_moments(width)
    mean, squared_mean = float(np.mean(means)), float(np.mean(squares))
    # Networks are the independent draws; rows and images of one share their weights.
    error = float(np.std(means, ddof=1) / n_networks**0.5)
    return {
        "width": width,
        "n_networks": n_networks,
        "mean": mean,
        "std": (squared_mean - mean**2) ** 0.5,
        "standard_error": error,
        "expected_mean": moments.mean,
        "expected_std": moments.variance**0.5,
        "holds": [abs(mean - moments.mean) <= N_SIGMA * error],
    }
