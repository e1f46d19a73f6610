"""Random walks of geometric length on a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array


@dataclass(frozen=True, eq=False)
class Walk:
    """Random walks along weighted edges, made by :meth:`on`. At a row without edges they stay.

    A step uses the alias method (Walker, 1977): it draws one of the row's edges uniformly, and
    then keeps this edge with probability ``kept``, or else takes the edge's alias. One random
    number decides both, so that a step costs the same however many edges a row has.
    """

    first: np.ndarray  # first edge of each row, intp (n,)
    degrees: np.ndarray  # number of edges of each row, float64 (n,)
    kept: np.ndarray  # probability that a drawn edge is kept, float64 (n_edges,)
    # At 2 e the row where the alias of edge e leads, at 2 e + 1 where edge e leads.
    ends_of_edges: np.ndarray  # int32 (2 n_edges,)

    @classmethod
    def on(cls, graph: csr_array) -> Walk:
        """Walks on a graph of positive finite weights (n, n), which is not changed."""
        isolated = np.diff(graph.indptr) == 0
        if isolated.any():
            graph = graph + diags_array(isolated.astype(np.float64))
        first, degrees = graph.indptr[:-1].astype(np.intp), np.diff(graph.indptr)
        kept, alias = _alias_table(graph.data.astype(np.float64), first, degrees)
        ends = np.stack([graph.indices[alias], graph.indices], axis=1).astype(np.int32).ravel()
        return cls(first, degrees.astype(np.float64), kept, ends)

    def ends(
        self, starts: ArrayLike, mean_length: float, randoms: Sequence[np.random.Generator]
    ) -> np.ndarray:
        """The row in which a walk from each of the rows `starts` (n, W) ends, int64 (n, W).

        Lengths are geometric: P(length = t) = (1 - q) q^(t - 1) for t = 1, 2, ... with
        q = 1 - 1 / mean_length. Each of the n generators draws the W walks of one line of `starts`,
        so that they do not depend on the other lines.
        """
        starts = np.asarray(starts, dtype=np.int64)
        lengths, draws = [], []
        for random in randoms:
            lengths.append(random.geometric(1 / mean_length, size=starts.shape[1]))
            draws.append(random.random(int(np.sum(lengths[-1]))))
        length, uniform = np.concatenate(lengths), np.concatenate(draws)
        # The longest walks come first, so that those still moving are a slice.
        order = np.argsort(-length, kind="stable")
        draw, current = (np.cumsum(length) - length)[order], starts.ravel()[order]
        n_moving = length.size - np.cumsum(np.bincount(length))  # after 0, 1, 2, ... steps
        for n in n_moving[:-1]:
            rows = current[:n]
            position = uniform.take(draw[:n]) * self.degrees.take(rows)
            number = position.astype(np.intp)
            edge = self.first.take(rows) + number
            is_kept = position - number < self.kept.take(edge)
            current[:n] = self.ends_of_edges.take(2 * edge + is_kept)
            draw[:n] += 1
        ends = np.empty_like(current)
        ends[order] = current
        return ends.reshape(starts.shape)


def _alias_table(
    weights: np.ndarray, first: np.ndarray, degrees: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """For each edge (n_edges,), the probability that it is kept, and the number of its alias.

    1. A row's weights are scaled to mean 1 and sorted: light edges, below 1, before heavy ones.
    2. The first heavy edge fills light edges up to 1, one after the other. It becomes their alias,
       and loses what they lack.
    3. Once it is below 1 too, the next heavy edge fills it, then further light ones.

    Each round of the loop fills one edge in every row.
    """
    rows = np.repeat(np.arange(degrees.size), degrees)
    scaled = weights / np.maximum.reduceat(weights, first)[rows]
    scaled *= (degrees / np.add.reduceat(scaled, first))[rows]
    by_weight = np.lexsort((scaled, rows))  # the edges of each row, from the lightest on
    n_light = np.add.reduceat(scaled < 1.0, first)
    kept, alias = np.ones(weights.size), np.arange(weights.size)
    light, last_light, end = first.copy(), first + n_light, first + degrees
    heavy = last_light.copy()
    active = np.flatnonzero((light < last_light) & (heavy < end))
    left = np.ones(degrees.size)  # what the heavy edge at hand has left
    left[active] = scaled[by_weight[heavy[active]]]
    while active.size:
        giver = by_weight[heavy[active]]
        fills = left[active] >= 1.0
        # Rows whose heavy edge still has at least 1: it fills the next light edge.
        row = active[fills]
        edge = by_weight[light[row]]
        kept[edge], alias[edge] = scaled[edge], giver[fills]
        left[row] -= 1.0 - scaled[edge]
        light[row] += 1
        # The others: the next heavy edge fills this one.
        row = active[~fills]
        heavy[row] += 1
        is_last = heavy[row] == end[row]  # only by rounding: then the last edge is always kept
        row, edge = row[~is_last], giver[~fills][~is_last]
        kept[edge], alias[edge] = left[row], by_weight[heavy[row]]
        left[row] += scaled[alias[edge]] - 1.0
        unfilled = (light < last_light) | (left < 1.0)
        active = active[(unfilled & (heavy < end))[active]]
    return kept, alias
