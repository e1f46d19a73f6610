"""How L_uni puts its nine Gaussian kernels together: two readings of the paper.

Its text sums them, and so does :class:`MMDInitializer`. With their mean, which is a ninth of that,
L_sd and L_iod weigh nine times as much beside L_uni, and degenerate softmax and dead neurons after
all three terms are about as rare as in the paper.
"""

from __future__ import annotations

import argparse

__all__ = ["KERNELS", "add_kernels_option", "with_kernels"]

KERNELS: dict[str, float] = {"sum": 1.0, "mean": 1.0 / 9.0}
"""Name of a reading -> the weight of L_uni that is the same."""


def add_kernels_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--kernels``."""
    parser.add_argument(
        "--kernels",
        choices=list(KERNELS),
        default="sum",
        help="whether the nine kernels of L_uni are summed, as the paper's text has it, or "
        "averaged, as its tables of the appendix suggest; of the paper's objective, without "
        "coherence; default: sum",
    )


def with_kernels(stem: str, kernels: str) -> str:
    """Name of results: one reading of the paper must not overwrite another."""
    return stem if kernels == "sum" else f"{stem}_{kernels}_of_kernels"
