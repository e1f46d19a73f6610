"""Which sampler draws a layer: where there is a choice, the one that costs less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["SAMPLERS", "gram_is_cheaper", "layers_by_gram"]

SAMPLERS = ("auto", "direct", "gram")

# What gram does besides the draw, in draws of a normal: the products of two (B, n) matrices,
# a unit of n, and the factor of a (B, B) matrix, an entry. Measured on an x86-64 core.
_PRODUCT, _FACTOR = 0.014, 10.0


def layers_by_gram(widths: Sequence[int], n_rows: int, sampler: str) -> tuple[bool, ...]:
    """Which layers are drawn by gram, the others being drawn by direct.

    Parameters
    ----------
    widths : sequence of int
        Of the network, from the input to the logits.
    n_rows : int
        B.
    sampler : {"auto", "direct", "gram"}
        As in :class:`sklearn_mmdinit._sampling.Perturbation`.

    Returns
    -------
    tuple of bool
        One for each layer.
    """
    if sampler != "auto":
        return (sampler == "gram",) * (len(widths) - 1)
    return tuple(
        gram_is_cheaper(n_rows, n_in, n_out, first=layer == 0)
        for layer, (n_in, n_out) in enumerate(pairwise(widths))
    )


def gram_is_cheaper(n_rows: int, n_in: int, n_out: int, *, first: bool) -> bool:
    """Whether a copy of a layer costs less by gram, in draws of a normal."""
    direct = n_out * (n_in + 1)
    gram = n_out * n_rows
    # The copies of the first layer share their inputs, and so the factor.
    rest = 0.0 if first else n_rows**2 * ((n_in + n_out) * _PRODUCT + _FACTOR)
    return gram + rest < direct
