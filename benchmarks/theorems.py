"""Claim: the paper's three theorems hold at every point; the first says far less than its proof.

Each theorem beside what it speaks of, a point at a time, with whether it holds there:

- Theorem 1: how often a perturbation leaves a ball, over radii, for m equal parameters and for the
  paper's network at several widths; the theorem's bound and the sharper one of its proof.
- Theorem 2: the share of images that a perturbed network gives to a class against the bound of
  it, for several numbers of classes d, on scikit-learn's digits; a point is a class of a network.
- Theorem 3: the norm of a row of a layer's Jacobian, over widths n, in networks with He's weights;
  it holds where the mean is within four standard errors of its exact value at that width, which
  tends to the theorem's 1.

The bounds are ``sklearn_mmdinit.theory``'s::

    perturbation_norm_tail_bound(radius, perturbation_std(architecture))
    class_probability_lower_bound(mean_vertex_distances(probabilities), n_classes)
    jacobian_row_norm_moments(n_in)

Run it (under a minute on one core, some seconds with ``--quick``)::

    python benchmarks/theorems.py
    python benchmarks/theorems.py --quick

It prints a table, draws the points, and writes each of them as JSON. Cases that were measured are
kept, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from data.datasets import load_digits_dataset, standardize
from protocol.command import command_parser
from protocol.options import add_output_options
from protocol.provenance import versions
from protocol.store import digest_of
from protocol.study import Cell, Study, run_study
from protocol.theorem_points import class_points, jacobian_points, network_std, tail_points
from reporting.theorem_figure import draw_theorems
from reporting.theorem_tables import theorems_text

__all__ = ["main"]


@dataclass(frozen=True)
class Plan:
    """The cases; ``n_rows`` of Jacobians for each width, from ``n_networks`` or more."""

    n_draws: int
    n_radii: int
    n_equal: tuple[int, ...]
    network_widths: tuple[int, ...]
    n_classes: tuple[int, ...]
    squared_scales: tuple[float, ...]
    n_networks: int
    n_rows: int
    widths: tuple[int, ...]


FULL = Plan(
    n_draws=500_000,
    n_radii=24,
    n_equal=(1, 10, 100, 1000),
    network_widths=(8, 64, 392),
    n_classes=(2, 3, 5, 10),
    squared_scales=(0.5, 2.0, 8.0),
    n_networks=20,
    n_rows=16_384,
    widths=(4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
QUICK = Plan(20_000, 8, (1, 100), (8,), (2, 3), (0.5, 8.0), 5, 256, (4, 16, 64))

# Images in each network of Theorem 3.
N_IMAGES = 32


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases and draws")
    add_output_options(parser)
    return parser


def _cases(plan: Plan, X: np.ndarray, seed: int) -> Iterator[tuple[int, str, Callable[[], Any]]]:
    """Number of the theorem, the case in words, and what measures it."""
    tails = partial(tail_points, n_draws=plan.n_draws, n_radii=plan.n_radii, seed=seed)
    for m in plan.n_equal:
        yield 1, f"m = {m:,} equal", partial(tails, np.ones(m))
    for width in plan.network_widths:
        yield 1, f"784-{width}-{width}-{width}-2", partial(tails, network_std(width))
    for d in plan.n_classes:
        yield (
            2,
            f"d = {d}",
            partial(
                class_points,
                X,
                d,
                squared_scales=plan.squared_scales,
                n_networks=plan.n_networks,
                seed=seed,
            ),
        )
    for width in plan.widths:
        # The norms of a narrow network scatter more.
        n_networks = min(max(plan.n_networks, plan.n_rows // width), plan.n_rows // 16)
        measure = partial(
            jacobian_points, X, width, n_networks=n_networks, n_images=N_IMAGES, seed=seed
        )
        yield 3, f"n = {width}", measure


def _prepare(options: argparse.Namespace) -> Study:
    plan = QUICK if options.quick else FULL
    X = standardize(load_digits_dataset())[0]
    settings = asdict(plan) | {"n_images": N_IMAGES, "seed": options.seed}
    identity = [settings, versions()]
    cells = tuple(
        Cell(
            f"theorem {theorem}, {case}",
            {"theorem": theorem, "case": case},
            digest_of([theorem, case, *identity]),
            measure,
        )
        for theorem, case, measure in _cases(plan, X, options.seed)
    )
    return Study("theorems", __doc__, cells, settings, options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    return run_study(parser, options, _prepare, theorems_text, draw_theorems)


if __name__ == "__main__":
    raise SystemExit(main())
