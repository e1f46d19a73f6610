"""The floor of a pre-training step: its dense products alone.

Counted are the products over the K perturbed networks that the library's samplers need, forward
and backward. Left out are the factorisations, the few products of L_iod and all that is not a
product, so that no step can reach the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from timing.clock import timed

__all__ = [
    "LayerSize",
    "Product",
    "products_of_layers",
    "products_of_step",
    "products_runner",
    "sgemm_runner",
    "total_flops",
]


@dataclass(frozen=True)
class Product:
    """``batch`` products of (rows, inner) by (inner, columns)."""

    name: str
    batch: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each term."""
        return 2 * self.batch * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class LayerSize:
    """A layer as products: its weight (n_out, n_in) acts at so many positions of an example.

    A convolution's n_in counts the channels of its input times the pixels of its kernel.
    """

    n_in: int
    n_out: int
    by_gram: bool
    positions: int = 1


def products_of_step(
    widths: Sequence[int], batch_size: int, n_networks: int, gram: Sequence[bool]
) -> list[Product]:
    """The dense products of one step, layer by layer.

    Parameters
    ----------
    widths : sequence of int
        From the input to the logits.
    batch_size : int
        B.
    n_networks : int
        K.
    gram : sequence of bool
        For each layer whether its outputs are drawn by "gram"; else its weights are drawn.

    Returns
    -------
    list of Product
        Of :func:`products_of_layers`.
    """
    sizes = zip(pairwise(widths), gram, strict=True)
    layers = [LayerSize(n_in, n_out, by_gram) for (n_in, n_out), by_gram in sizes]
    return products_of_layers(layers, batch_size, n_networks)


def products_of_layers(
    layers: Sequence[LayerSize], batch_size: int, n_networks: int
) -> list[Product]:
    """The same for layers that may be convolutions, whose rows are the patches of their inputs.

    Parameters
    ----------
    layers : sequence of LayerSize
        The first one sees the examples.
    batch_size, n_networks : int
        B and K.

    Returns
    -------
    list of Product
        H is a layer's input, W its weight, L the factor of its noise's covariance, Z its
        normals and G the gradient at its output. The first layer's input is shared by all
        networks and needs no gradient.
    """
    K = n_networks
    products = []
    for number, layer in enumerate(layers):
        n_in, n_out, by_gram = layer.n_in, layer.n_out, layer.by_gram
        B, shared = batch_size * layer.positions, number == 0
        rows, batch = (B, 1) if shared else (K * B, K)
        products.append(Product("G' H", 1, n_out, rows, n_in))
        if by_gram:
            products += [
                Product("H W'", 1, rows, n_in, n_out),
                Product("H H'", batch, B, n_in, B),
                Product("L Z", K, B, B, n_out),
            ]
        else:
            products.append(Product("H (W + E)'", K, B, n_in, n_out))
        if by_gram and not shared:
            products += [
                Product("G W", 1, rows, n_out, n_in),
                Product("G Z'", K, B, n_out, B),
                Product("(G Z') L^-1", K, B, B, B),
                Product("(G Z' L^-1) H", K, B, B, n_in),
            ]
        elif not shared:
            products.append(Product("G (W + E)", K, B, n_out, n_in))
    return products


def total_flops(products: Sequence[Product]) -> int:
    return sum(product.flops for product in products)


def sgemm_runner(rows: int, width: int, device: str) -> Callable[[], float]:
    """A measure of the seconds of one float32 product (rows, width) by (width, width)."""
    A, B = torch.randn(rows, width, device=device), torch.randn(width, width, device=device)
    out = torch.empty(rows, width, device=device)
    n = 10

    def run() -> None:
        for _ in range(n):
            torch.mm(A, B, out=out)

    run()
    return lambda: timed(run, device) / n


def products_runner(products: Sequence[Product], device: str) -> Callable[[], float]:
    """A measure of the seconds of all products, back to back, into memory already there."""
    kept: dict[tuple[Any, ...], torch.Tensor] = {}

    def tensor(role: str, *shape: int) -> torch.Tensor:
        # Products that never run at once may share operands: less to keep in memory.
        if (role, shape) not in kept:
            kept[role, shape] = torch.randn(shape, device=device)
        return kept[role, shape]

    jobs = []
    for p in products:
        lead = () if p.batch == 1 else (p.batch,)
        # As the library meets it: H' is a view of H, stored by rows.
        left = (
            tensor("left", p.inner, p.rows).mT
            if p.name == "G' H"
            else tensor("left", *lead, p.rows, p.inner)
        )
        right = tensor("right", *lead, p.inner, p.columns)
        out = tensor("out", *lead, p.rows, p.columns)
        jobs.append((torch.mm if p.batch == 1 else torch.bmm, left, right, out))

    def run() -> None:
        for multiply, left, right, out in jobs:
            multiply(left, right, out=out)

    run()
    return lambda: timed(run, device)
