"""Equal rows: found once, searched once, and linked to each other.

Rows of which there are more copies than neighbours would have one another for neighbours and
nobody else: an island that no walk leaves or reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

__all__ = ["count_distinct", "distinct_rows", "share_neighbors"]

_BLOCK = 4096  # rows read at a time


def _digests(X: np.ndarray) -> Iterator[bytes]:
    """Of 128 bits, one a row: that two rows differ and agree in them has no chance."""
    for start in range(0, len(X), _BLOCK):
        # + 0.0 makes -0.0 the same bytes as 0.0.
        for row in np.ascontiguousarray(X[start : start + _BLOCK] + 0.0):
            yield blake2b(row.data, digest_size=16).digest()


def count_distinct(X: np.ndarray, most: int) -> int:
    """How many different rows an array (n, ...) has; no more than `most` are looked for."""
    seen: set[bytes] = set()
    for digest in _digests(X):
        seen.add(digest)
        if len(seen) == most:
            break
    return len(seen)


def distinct_rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different rows of an array, each with all that are equal to it.

    Read by blocks: a memory map is never in memory as a whole.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Rows of numbers; 0.0 and -0.0 are equal.

    Returns
    -------
    first : ndarray of shape (m,), int64
        Where each of the m different rows occurs first, in increasing order.
    place : ndarray of shape (n,), int64
        Which of them each row is: X equals X[first][place].

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit._graph.distinct import distinct_rows
    >>> distinct_rows(np.array([[1.0], [2.0], [1.0], [3.0]]))
    (array([0, 1, 3]), array([0, 1, 0, 2]))
    """
    seen: dict[bytes, int] = {}
    place = np.empty(X.shape[0], dtype=np.int64)
    first: list[int] = []
    for i, digest in enumerate(_digests(X)):
        place[i] = seen.setdefault(digest, len(seen))
        if place[i] == len(first):
            first.append(i)
    return np.array(first, dtype=np.int64), place


def share_neighbors(neighbors: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Neighbours of all rows from those of the different rows.

    Equal rows stand in a ring, in which the nearest neighbour of each is the next: from each,
    all can be reached. The others are the neighbours that a row of its kind has, less the
    farthest; of several rows equal to a neighbour, different rows take different ones. Where
    one neighbour is asked for there is no ring, which would be an island.

    Parameters
    ----------
    neighbors : ndarray of shape (m, k), int
        Nearest neighbours of the m different rows among them, the nearest first.
    place : ndarray of shape (n,), int64
        Which of the different rows each row is.

    Returns
    -------
    shared : ndarray of shape (n, k), int32
        Rows that are the neighbours of each row.

    Examples
    --------
    Rows 0, 2 and 3 are equal:

    >>> import numpy as np
    >>> from sklearn_mmdinit._graph.distinct import share_neighbors
    >>> share_neighbors(np.array([[1, 2], [2, 0], [1, 0]]), np.array([0, 1, 0, 0, 2]))
    array([[2, 1],
           [4, 2],
           [3, 1],
           [0, 1],
           [1, 2]], dtype=int32)
    """
    n, k = place.size, neighbors.shape[1]
    members = np.argsort(place, kind="stable").astype(np.int32)  # rows, by place
    sizes = np.bincount(place)
    starts = np.cumsum(sizes) - sizes
    places = neighbors[place]  # (n, k)
    turn = np.arange(n)[:, None] % sizes[places]
    shared = members[starts[places] + turn]
    if k > 1:
        equal = np.flatnonzero(sizes[place] > 1)
        shared[equal, 1:] = shared[equal, :-1]
        shared[equal, 0] = _next_equal_row(place, members, sizes, starts)[equal]
    return shared


def _next_equal_row(
    place: np.ndarray, members: np.ndarray, sizes: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """The row after each in the ring of those equal to it, of shape (n,)."""
    rank = np.empty_like(place)  # among the rows equal to it
    rank[members] = np.arange(place.size) - starts[place[members]]
    return members[starts[place] + (rank + 1) % sizes[place]]
