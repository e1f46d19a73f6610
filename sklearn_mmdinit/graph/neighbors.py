"""Nearest neighbours of each row among the others: exact, or of many rows nearly so."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from .._base.progress import bar
from .._base.validation import warn_user

N_COMPONENTS = 50

# Rows from which the approximate search is the cheaper one: on two cores 100,000 took 1.4 s and
# 24 s of numba's compiling it, in each process, against 22 s; a million 13 s against half an hour.
EXACT_BELOW = 100_000

# Of one distance in 50 dimensions on two cores, for a forecast of how long a search will take.
_SECONDS_A_PAIR = 2e-9

_INSTALL = "pip install 'sklearn_mmdinit[neighbors]'"
_BLOCK = 4096  # rows read, or searched, at a time
_MOST_ENTRIES = 100_000_000  # of the rows that components are learned from: 400 MB
_MOST_FEATURES = 2_000  # whose covariance is formed; its eigenvectors take a second
_SEED = 0  # always the same: theta0s of all seeds share the graph, and its place in a memory

# Neighbours that the approximate search is asked for beyond those needed: at 60,000 digits they
# raise the part of the nearest that it finds from 98.3 to 99.6 %, and take no longer.
_SPARE = 5


def nearest_neighbors(X: np.ndarray, n_neighbors: int, *, verbose: Any = 0) -> np.ndarray:
    """Neighbours (n, n_neighbors) of rows X (n, p) in 50 components; equal rows are a ring."""
    first, place = distinct_rows(X)
    if n_neighbors >= (n_distinct := first.size):
        found = f"Only {n_distinct} of the {len(X)} rows differ"
        raise ValueError(f"{found}: too few for {n_neighbors=}, which must be smaller.")
    points = principal_components(X)[first]
    if _exact_is_best(len(points)):
        neighbors = exact(points, n_neighbors, verbose=verbose)
    else:
        neighbors = approximate(points, n_neighbors)
    return share_neighbors(neighbors, place)


def _exact_is_best(n: int) -> bool:
    """Whether so many rows are few, or there is nothing else to search them with."""
    if n < EXACT_BELOW:
        return True
    if find_spec("pynndescent") is not None:
        return False
    warn_user(
        f"The exact neighbours of {n} rows may take {_SECONDS_A_PAIR * n * n / 60:.0f} minutes on "
        f"two cores. A search that is nearly exact and much faster needs: {_INSTALL}",
    )
    return True


# The two searches


def exact(
    points: np.ndarray, n_neighbors: int, queries: np.ndarray | None = None, verbose: Any = 0
) -> np.ndarray:
    """Neighbours (q, n_neighbors) of rows `queries` (q,) among points (n, c), by all distances."""
    if queries is None:
        queries = np.arange(len(points))
    # In 50 dimensions trees look at most points all the same, and are 17 times slower. Distances
    # are in float64 from float32 rows: no cancellation between near ones.
    index = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(points)
    neighbors = np.empty((queries.size, n_neighbors), dtype=np.int32)
    starts, shown = range(0, queries.size, _BLOCK), {"unit": " rows", "unit_scale": _BLOCK}
    for start in bar(verbose, iterable=starts, desc="neighbours", leave=False, **shown):
        block = queries[start : start + _BLOCK]
        found = index.kneighbors(points[block], return_distance=False)
        neighbors[start : start + _BLOCK] = _without_self(found, block, n_neighbors)
    return neighbors


def approximate(points: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Neighbours (n, n_neighbors) among points (n, c): neighbours of neighbours, by pynndescent."""
    # numba warns of what it compiles anew in each process, pynndescent of rows with too few
    # neighbours, which get them below.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pynndescent import NNDescent

        n_asked = min(n_neighbors + 1 + _SPARE, len(points))
        found, _ = NNDescent(points, n_neighbors=n_asked, random_state=_SEED).neighbor_graph
    neighbors = _without_self(found, np.arange(len(points)), n_neighbors)
    incomplete = np.flatnonzero((neighbors < 0).any(axis=1))
    if incomplete.size:
        neighbors[incomplete] = exact(points, n_neighbors, incomplete)
    return neighbors


def _without_self(found: np.ndarray, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The first (len(rows), n_neighbors) of what was found for rows, less the row itself, int32."""
    itself = found == rows[:, None]
    # Among points of no distance it may not be found at all: then the last goes in its place.
    itself[~itself.any(axis=1), -1] = True
    return found[~itself].reshape(len(rows), -1)[:, :n_neighbors].astype(np.int32)


# Equal rows


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
    """Where each of m different rows is first (m,), and which of them each row is (n,)."""
    seen: dict[bytes, int] = {}
    place = np.empty(X.shape[0], dtype=np.int64)
    first: list[int] = []
    for i, digest in enumerate(_digests(X)):
        place[i] = seen.setdefault(digest, len(seen))
        if place[i] == len(first):
            first.append(i)
    return np.array(first, dtype=np.int64), place


def share_neighbors(neighbors: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Neighbours of all rows (n, k): the next of a row's equals in a ring, then its kind's."""
    n, k = place.size, neighbors.shape[1]
    members = np.argsort(place, kind="stable").astype(np.int32)  # rows, by place
    sizes = np.bincount(place)
    starts = np.cumsum(sizes) - sizes
    places = neighbors[place]  # (n, k)
    # Of several rows equal to a neighbour, different rows take different ones.
    turn = np.arange(n)[:, None] % sizes[places]
    shared = members[starts[places] + turn]
    if k > 1:  # of one neighbour alone a ring would be an island
        equal = np.flatnonzero(sizes[place] > 1)
        rank = np.empty_like(place)  # among the rows equal to it
        rank[members] = np.arange(n) - starts[place[members]]
        following = members[starts[place] + (rank + 1) % sizes[place]]
        shared[equal, 1:] = shared[equal, :-1]
        shared[equal, 0] = following[equal]
    return shared


# Principal components, of rows read by blocks: a memory map is never in memory as a whole


def principal_components(X: np.ndarray, n_components: int = N_COMPONENTS) -> np.ndarray:
    """Rows (n, p), centred in float64, in their first components (n, n_components), float32."""
    n, p = X.shape
    rows, most = np.arange(n), max(_MOST_ENTRIES // p, 10 * n_components)
    if n > most:  # in order: a memory map is read from its beginning to its end
        rows = np.sort(np.random.default_rng(_SEED).choice(n, most, replace=False))
    mean, low, high = np.zeros(p), np.full(p, np.inf), np.full(p, -np.inf)
    for block in gen_batches(rows.size, _BLOCK):
        taken = X[rows[block]]
        mean += taken.sum(axis=0, dtype=np.float64) / rows.size
        low, high = np.minimum(low, taken.min(axis=0)), np.maximum(high, taken.max(axis=0))
    # Squares, and sums of them over all rows, are to be ordinary numbers of float32. A power of two
    # rounds nothing; beyond 1000 it would be infinity itself.
    exponent = math.frexp(float(np.maximum(high - mean, mean - low).max()))[1]
    factor = math.ldexp(1.0, min(-exponent, 1000))

    def centred(block: slice | np.ndarray) -> np.ndarray:
        return (X[block] - mean) * factor  # float64

    axes = None
    if n_components < min(n, p):
        sample = np.empty((rows.size, p), dtype=np.float32)
        for block in gen_batches(rows.size, _BLOCK):
            sample[block] = centred(rows[block])
        solver = "covariance_eigh" if p <= _MOST_FEATURES else "randomized"
        pca = PCA(n_components, svd_solver=solver, copy=False, random_state=_SEED).fit(sample)
        axes = pca.components_.T.astype(np.float64)  # (p, n_components)
    projected = np.empty((n, p if axes is None else n_components), dtype=np.float32)
    for block in gen_batches(n, _BLOCK):
        projected[block] = centred(block) if axes is None else centred(block) @ axes
    return projected
