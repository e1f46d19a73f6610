"""Claim: the paper's three theorems hold at every point; the first says far less than its proof.

Each theorem beside what it speaks of, a point at a time, with whether it holds there:

- Theorem 1: how often a perturbation leaves a ball, over radii, for m equal parameters and for the
  paper's network at several widths; the theorem's bound and the sharper one of its proof.
- Theorem 2: the share of images that a perturbed network gives to a class against the bound of
  it, for several numbers of classes d, on scikit-learn's digits; a point is a class of a network.
- Theorem 3: the norm of a row of a layer's Jacobian, over widths n, in networks with He's weights;
  it holds where the mean is within four standard errors of its exact value at that width, which
  tends to the theorem's 1.

Run it (under 60 seconds on one core)::

    python benchmarks/theorems.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.datasets import load_digits_dataset, standardize
from protocol import command
from protocol.diagnostics import prediction_samples
from protocol.theory import (
    class_probability_lower_bound,
    jacobian_row_norm_moments,
    mean_vertex_distances,
    perturbation_norm_tail_bound,
    perturbation_std,
    relu_jacobian_row_norms,
)
from reporting.tables import publish
from sklearn_mmdinit import MMDInitializer

# The cases; ``n_rows`` of Jacobians for each width, from ``n_networks`` or more.
PLAN: dict[str, Any] = {
    "n_draws": 500_000,
    "n_radii": 24,
    "n_equal": (1, 10, 100, 1000),
    "network_widths": (8, 64, 392),
    "n_classes": (2, 3, 5, 10),
    "squared_scales": (0.5, 2.0, 8.0),
    "n_networks": 20,
    "n_rows": 16_384,
    "widths": (4, 8, 16, 32, 64, 128, 256, 512, 1024),
}

# Images in each network of Theorem 3.
N_IMAGES = 32

# A mean that is right is further off about once in 1,300 comparisons (20 networks: t, 19 df).
N_SIGMA = 4.0

# Float32 probabilities, summed over images.
ROUNDING = 1e-6


def _fresh(sizes: tuple[int, ...], X: np.ndarray, **params: Any) -> MMDInitializer:
    """An initializer fitted for no epoch: its theta0 is fresh."""
    return MMDInitializer(sizes, max_iter=0, device="cpu", **params).fit(X[:2])


def network_std(width: int) -> np.ndarray:
    """The paper's perturbation of 784-w-w-w-2: a standard deviation for each parameter."""
    return perturbation_std((784, width, width, width, 2))


def drawn_norms(std: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Norms (n_draws,) of N(0, diag(std^2)): a sum of one chi-squared number for each value."""
    rng, squares = np.random.default_rng(seed), np.zeros(n_draws)
    for value, count in zip(*np.unique(std, return_counts=True), strict=True):
        squares += value**2 * rng.chisquare(count, n_draws)
    return np.sqrt(squares)


def _radii(std: np.ndarray, form: str) -> np.ndarray:
    """Radii along which the bound falls from 0.99 to a millionth, closer where it is large."""
    variances = std**2
    smallest = {"theorem": std.size * variances.max(), "sub_exponential": variances.sum()}[form]
    grid = np.sqrt(smallest) * (1.0 + np.geomspace(1e-7, 100.0, 3000))
    bounds = perturbation_norm_tail_bound(grid, std, form)
    wanted = np.linspace(np.sqrt(-np.log(0.99)), np.sqrt(-np.log(1e-6)), PLAN["n_radii"]) ** 2
    # Far out it underflows to 0.
    return np.interp(wanted, -np.log(bounds[bounds > 0]), grid[bounds > 0])


def tail_points(std: np.ndarray, seed: int) -> dict[str, Any]:
    """Theorem 1: how often a perturbation of these deviations leaves a ball, and the bounds."""
    norms, forms = drawn_norms(std, PLAN["n_draws"], seed), {}
    for form in ("theorem", "sub_exponential"):
        radii = _radii(std, form)
        bounds = perturbation_norm_tail_bound(radii, std, form)
        frequencies = np.array([(norms >= radius).mean() for radius in radii])
        forms[form] = {
            "radii": radii.tolist(),
            "bounds": bounds.tolist(),
            "frequencies": frequencies.tolist(),
            "holds": (frequencies <= bounds).tolist(),
        }
    return {
        "n_parameters": std.size,
        "root_mean_square_norm": float(np.sqrt((std**2).sum())),
        "radius_of_one_percent": float(np.quantile(norms, 0.99)),
        "n_draws": PLAN["n_draws"],
        "forms": forms,
    }


def class_points(X: np.ndarray, n_classes: int, seed: int) -> dict[str, Any]:
    """Theorem 2: the share of images that a network gives to a class, and the bound of it."""
    network = _fresh((64, 64), X, n_classes=n_classes, random_state=seed).to_module()
    # Perturbations of the paper's size leave predictions in the middle of the simplex, where the
    # bound is 0; longer ones move them out.
    distances, shares = [], []
    for square in PLAN["squared_scales"]:
        for probabilities in prediction_samples(
            network, X, PLAN["n_networks"], seed=seed, perturbation_scale=square**0.5
        ):
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


def jacobian_points(X: np.ndarray, width: int, seed: int) -> dict[str, Any]:
    """Theorem 3: norms of the rows of the second layer's Jacobian in networks with He's weights.

    Given an image its pre-activations are independent and symmetric, as the theorem assumes.
    """
    n_networks, n_rows = PLAN["n_networks"], PLAN["n_rows"]
    # The norms of a narrow network scatter more.
    n_networks = min(max(n_networks, n_rows // width), n_rows // 16)
    means, squares = [], []
    # Of their own for each width: large errors at one are not those at the next.
    for network_seed in np.random.SeedSequence([seed, width]).generate_state(n_networks):
        network = _fresh((width, width), X, init="he", random_state=int(network_seed))
        pre_activations = X[:N_IMAGES] @ network.coefs_[0] + network.intercepts_[0]
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


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    command.add_output_options(parser)
    options = parser.parse_args(argv)
    X, seed = standardize(load_digits_dataset())[0], options.seed
    records = []

    def keep(theorem: int, case: str, points: dict[str, Any]) -> None:
        command.say(options, f"theorem {theorem}, {case}")
        records.append({"theorem": theorem, "case": case, **points})

    with command.resumable(parser):
        for m in PLAN["n_equal"]:
            keep(1, f"m = {m:,} equal", tail_points(np.ones(m), seed))
        for width in PLAN["network_widths"]:
            name = f"784-{width}-{width}-{width}-2"
            keep(1, name, tail_points(network_std(width), seed))
        for d in PLAN["n_classes"]:
            keep(2, f"d = {d}", class_points(X, d, seed))
        for n in PLAN["widths"]:
            keep(3, f"n = {n}", jacobian_points(X, n, seed))
    settings = PLAN | {"n_images": N_IMAGES}
    publish(parser, options, {"settings": settings, "records": records}, ["theorems"])


if __name__ == "__main__":
    main()
