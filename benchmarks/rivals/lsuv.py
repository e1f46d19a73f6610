"""Layer-sequential unit-variance weights (Mishkin and Matas, ICLR 2016, arXiv:1511.06422).

Orthonormal weights, then one layer after the other is scaled until its outputs on a mini-batch
of unlabelled rows, before the activation, have variance 1. Biases are 0, so an output is linear in
its layer's weights and one division is exact: the loop of the paper has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rivals.fresh import Arrays, weight_name

__all__ = ["lsuv_arrays", "orthonormal"]


def orthonormal(n_out: int, n_in: int, rng: np.random.Generator) -> np.ndarray:
    """A random matrix (n_out, n_in) with orthonormal rows, or columns where they are fewer.

    Uniform on such matrices: the signs of QR's diagonal, which LAPACK chooses, are undone.
    """
    q, r = np.linalg.qr(rng.normal(size=(max(n_out, n_in), min(n_out, n_in))))
    q = q * np.sign(np.diag(r))
    return q.T if n_out < n_in else q


def lsuv_arrays(
    X: np.ndarray, widths: Sequence[int], rng: np.random.Generator, *, batch_size: int = 256
) -> Arrays:
    """Weights of a ReLU network whose layers' outputs have variance 1 on a mini-batch.

    Parameters
    ----------
    X : ndarray, shape (n, widths[0])
        Unlabelled rows; the mini-batch is drawn from them without replacement.
    widths : sequence of int
        Of the input, the hidden layers and the logits.
    rng : numpy.random.Generator
        Draws the rows and the weights.
    batch_size : int
        Rows of the mini-batch, all of them where there are fewer.

    Raises
    ------
    ValueError
        If a layer's outputs do not vary: rows that are all zero.
    """
    rows = rng.choice(len(X), size=min(batch_size, len(X)), replace=False)
    layer_input = X[rows].astype(np.float64)
    arrays: Arrays = {}
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        weight = orthonormal(n_out, n_in, rng)
        # Over rows and units together, as in the paper.
        std = float((layer_input @ weight.T).std())
        if std == 0.0:
            raise ValueError(f"the outputs of layer {layer} do not vary on {len(rows)} rows of X")
        weight = weight / std
        arrays[weight_name(layer)] = weight.astype(np.float32)
        arrays[f"linears.{layer}.bias"] = np.zeros(n_out, dtype=np.float32)
        layer_input = np.maximum(layer_input @ weight.T, 0.0)
    return arrays
