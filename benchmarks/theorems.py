"""Claim: the paper's three theorems hold at every point; the first says far less than its proof.

Each theorem beside what it speaks of, a point at a time, with whether it holds there: how often a
perturbation leaves a ball, over radii; the share of scikit-learn's digits that a perturbed network
gives to a class; the norm of a row of a layer's Jacobian under He's weights, over widths.

Run it (under 60 seconds on one core)::

    python benchmarks/theorems.py
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.datasets import load_digits_dataset, standardize
from protocol import command, theory
from protocol.diagnostics import prediction_samples
from reporting.tables import publish
from sklearn_mmdinit import MMDInitializer

NETWORK_WIDTHS, N_CLASSES = (8, 64, 392), (2, 3, 5, 10)
WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
N_DRAWS, N_RADII = 500_000, 24
SQUARED_SCALES, N_NETWORKS = (0.5, 2.0, 8.0), 20
N_ROWS = 16_384  # of Jacobians, for each width
N_IMAGES = 32  # in each network of Theorem 3

# A mean that is right is further off about once in 1,300 comparisons (20 networks: t, 19 df).
N_SIGMA = 4.0
ROUNDING = 1e-6  # of float32 probabilities, summed over images


def _fresh(sizes: tuple[int, ...], X: np.ndarray, **params: Any) -> MMDInitializer:
    """An initializer fitted for no epoch: its theta0 is fresh."""
    return MMDInitializer(sizes, max_iter=0, device="cpu", **params).fit(X[:2])


def drawn_norms(std: np.ndarray, n_draws: int, seed: int) -> np.ndarray:
    """Norms (n_draws,) of N(0, diag(std^2)): a sum of one chi-squared number for each value."""
    rng, squares = np.random.default_rng(seed), np.zeros(n_draws)
    for value, count in zip(*np.unique(std, return_counts=True), strict=True):
        squares += value**2 * rng.chisquare(count, n_draws)
    return np.sqrt(squares)


def tail_points(std: np.ndarray, seed: int) -> dict[str, Any]:
    """Theorem 1: how often a perturbation of these deviations leaves a ball, and the bounds."""
    norms, forms = drawn_norms(std, N_DRAWS, seed), {}
    least = {"theorem": std.size * (std**2).max(), "sub_exponential": (std**2).sum()}
    for form, square in least.items():
        # Radii along which the bound falls from 0.99 to a millionth.
        grid = np.sqrt(square) * (1.0 + np.geomspace(1e-7, 100.0, 3000))
        bounds = theory.perturbation_norm_tail_bound(grid, std, form)
        grid = grid[(bounds < 0.99) & (bounds > 1e-6)]
        radii = grid[np.linspace(0, len(grid) - 1, N_RADII).astype(int)]
        bounds = theory.perturbation_norm_tail_bound(radii, std, form)
        frequencies = np.array([(norms >= radius).mean() for radius in radii])
        forms[form] = {
            "radii": radii.tolist(),
            "bounds": bounds.tolist(),
            "frequencies": frequencies.tolist(),
            "holds": (frequencies <= bounds).tolist(),
        }
    return {"root_mean_square_norm": float(np.sqrt((std**2).sum())), "forms": forms}


def class_points(X: np.ndarray, n_classes: int, seed: int) -> dict[str, Any]:
    """Theorem 2: the share of images that a network gives to a class, and the bound of it."""
    network = _fresh((64, 64), X, n_classes=n_classes, random_state=seed).to_module()
    # Perturbations of the paper's size leave predictions in the middle of the simplex, where the
    # bound is 0; longer ones move them out.
    distances, shares = [], []
    for square in SQUARED_SCALES:
        for probabilities in prediction_samples(
            network, X, N_NETWORKS, seed=seed, perturbation_scale=square**0.5
        ):
            largest = probabilities == probabilities.max(axis=1, keepdims=True)
            distances.append(theory.mean_vertex_distances(probabilities))
            shares.append(largest.mean(axis=0))
    distance, share = np.ravel(distances), np.ravel(shares)
    bounds = theory.class_probability_lower_bound(distance, n_classes)
    return {
        "distances": distance.round(6).tolist(),
        "shares": share.round(6).tolist(),
        "bounds": bounds.round(6).tolist(),
        "holds": (bounds <= share + ROUNDING).tolist(),
    }


def jacobian_points(X: np.ndarray, width: int, seed: int) -> dict[str, Any]:
    """Theorem 3: norms of the rows of the second layer's Jacobian in networks with He's weights.

    Given an image its pre-activations are independent and symmetric, as the theorem assumes.
    """
    # The norms of a narrow network scatter more.
    n_networks, means = min(max(N_NETWORKS, N_ROWS // width), N_ROWS // 16), []
    # Of their own for each width: large errors at one are not those at the next.
    for network_seed in np.random.SeedSequence([seed, width]).generate_state(n_networks):
        network = _fresh((width, width), X, init="he", random_state=int(network_seed))
        pre_activations = X[:N_IMAGES] @ network.coefs_[0] + network.intercepts_[0]
        means.append(theory.relu_jacobian_row_norms(network.coefs_[1].T, pre_activations).mean())
    mean, expected = float(np.mean(means)), theory.jacobian_row_norm_mean(width)
    # Networks are the independent draws; rows and images of one share their weights.
    error = float(np.std(means, ddof=1) / n_networks**0.5)
    found = {"n_networks": n_networks, "mean": mean, "standard_error": error}
    return found | {"expected_mean": expected, "holds": [abs(mean - expected) <= N_SIGMA * error]}


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
        for w in NETWORK_WIDTHS:
            std = theory.perturbation_std((784, w, w, w, 2))
            keep(1, f"784-{w}-{w}-{w}-2", tail_points(std, seed))
        for d in N_CLASSES:
            keep(2, f"d = {d}", class_points(X, d, seed))
        for n in WIDTHS:
            keep(3, f"n = {n}", jacobian_points(X, n, seed))
    publish(parser, options, {"records": records}, ["theorems"])


if __name__ == "__main__":
    main()
