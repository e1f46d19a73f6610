"""Where random walks of geometric length on a graph end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array
from sklearn.utils import gen_batches

# Cells that the interval of each row is divided into: a power of two, so that bounds are exact.
_CELLS = 16
# Edges of a cell that are looked at one after the other, before the place is searched.
_EDGES_OF_A_CELL = 8


@dataclass(frozen=True, eq=False)
class Walk:
    """Random walks along weighted edges, made by :meth:`on`; a row without edges keeps them."""

    targets: np.ndarray  # the row that each edge leads to, edges of a row next to each other
    # The sorted ends of the edges' intervals: those of row i share [i, i + 1), each as long as the
    # edge is probable, so that i plus a uniform number falls into the edge to take.
    cumulative: np.ndarray
    guide: np.ndarray  # of each cell of the rows' intervals the first edge that reaches into it

    @classmethod
    def on(cls, graph: csr_array) -> Walk:
        """Walks on the graph of these positive finite weights (n, n), which is not changed."""
        isolated = np.diff(graph.indptr) == 0
        if isolated.any():
            graph = graph + diags_array(isolated.astype(np.float64))
        weights = graph.data.astype(np.float64)
        rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
        last = graph.indptr[1:] - 1
        cumulative = _interval_ends(weights, rows, last)
        guide = np.empty(_CELLS * graph.shape[0], graph.indices.dtype)
        for cells in gen_batches(len(guide), 1 << 20):
            places = np.arange(cells.start, cells.stop) / _CELLS
            guide[cells] = np.searchsorted(cumulative, places, side="right")
        return cls(graph.indices, cumulative, guide)

    def ends(
        self, starts: ArrayLike, mean_length: float, randoms: Sequence[np.random.Generator]
    ) -> np.ndarray:
        """Ends of independent walks, one from each start, int64 of the shape (n, W) of `starts`.

        Their lengths are geometric: P(length = t) = (1 - q) q^(t - 1) for t = 1, 2, ... with
        q = 1 - 1 / mean_length; a mean length of 1 is exactly one step. The walks of a row are
        drawn with the row's own generator, and go the same ways whatever the other rows are.
        """
        starts = np.asarray(starts, dtype=np.int64)
        lengths, draws = [], []
        for random in randoms:
            lengths.append(random.geometric(1 / mean_length, size=starts.shape[1]))
            draws.append(random.random(int(np.sum(lengths[-1]))))
        length, uniform = np.concatenate(lengths), np.concatenate(draws)
        # Longest first: the walks that still move are then the first ones, a slice.
        order = np.argsort(-length, kind="stable")
        next_draw = (np.cumsum(length) - length)[order]
        at, shortest_last = starts.ravel()[order], -length[order]
        for step in range(length.max(initial=0)):
            moving = at[: np.searchsorted(shortest_last, -step)]
            # i + u may be rounded up to i + 1, where the next row begins.
            most = np.nextafter(moving + 1.0, 0.0)
            place = np.minimum(moving + uniform[next_draw[: moving.size] + step], most)
            edges = self.guide[(_CELLS * place).astype(np.int64)]
            behind = np.flatnonzero(self.cumulative[edges] <= place)
            for _ in range(_EDGES_OF_A_CELL):
                edges[behind] += 1
                behind = behind[self.cumulative[edges[behind]] <= place[behind]]
            edges[behind] = np.searchsorted(self.cumulative, place[behind], side="right")
            moving[:] = self.targets[edges]
        ends = np.empty_like(at)
        ends[order] = at
        return ends.reshape(starts.shape)


def _interval_ends(weights: np.ndarray, rows: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Row of each edge plus the row's cumulative probability up to it, float64 (E,)."""
    first = np.concatenate([[0], last[:-1] + 1])
    shares = weights / np.maximum.reduceat(weights, first)[rows]
    shares /= np.add.reduceat(shares, first)[rows]
    ends = np.cumsum(shares)
    before = ends[first] - shares[first]
    ends -= before[rows]
    # What rounding left over belongs to no other row, and what is past a row's end to nobody.
    np.clip(ends, 0.0, 1.0, out=ends)
    ends[last] = 1.0
    ends += rows
    return ends
