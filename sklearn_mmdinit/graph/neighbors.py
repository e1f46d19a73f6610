"""Nearest neighbours of each row, exact or nearly exact for many rows, and their graph."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_array

from .._base.environment import progress_bar
from .._base.validation import add_error_context, is_auto, warn_user

# From this number of rows on the approximate search is used. On two cores it takes 1.4 s for
# 100,000 rows, after numba has compiled it for 24 s, and 13 s for a million rows. The exact search
# takes 22 s for 100,000 rows, and half an hour for a million.
_EXACT_BELOW = 100_000
_SECONDS_A_PAIR = 2e-9  # exact search in 50 dimensions on two cores

_N_COMPONENTS = 50

_BLOCK = 4096  # rows read or searched at a time: a memory map is never in memory as a whole
# Always the same, so that the graph does not depend on the initializer's seed.
_SEED = 0
# The approximate search is asked for more neighbours than needed. Among 60,000 digits it finds
# 99.6 % of the nearest instead of 98.3 %, in the same time.
_SPARE = 5
_SAME_LENGTH = 1e-3  # relative difference of lengths that count as equal


def nearest_neighbors(
    X: np.ndarray,
    n_neighbors: int,
    n_components: Any = "auto",
    *,
    exact_below: int = _EXACT_BELOW,
    verbose: Any = 0,
) -> np.ndarray:
    """Neighbours (n, n_neighbors) of rows X (n, p), by distances in their first components.

    There are at most as many neighbours as other distinct rows. `n_components` is the number of
    components, None for all columns, or "auto": 50, but all columns if all rows have the same
    length.

    1. Equal rows form a kind. One row of each kind is kept.
    2. For the kept rows, neighbours among the kept rows are searched, exactly or approximately.
    3. Every row gets the neighbours that were found for its kind. If other rows equal it, and
       `n_neighbors` is above 1, one of them takes the place of the last neighbour.
    """
    representatives, kind = distinct_rows(X)
    if representatives.size == 1:
        raise ValueError(f"all {len(X)} rows of X are equal, so that none has a neighbour; check X")
    has_ring, n_neighbors = n_neighbors > 1, min(n_neighbors, representatives.size - 1)
    if is_auto(n_components):
        n_components = None if have_one_length(X) else _N_COMPONENTS
    n_components = X.shape[1] if n_components is None else n_components
    points = principal_components(X, n_components)[representatives]
    if (n := len(points)) >= exact_below and find_spec("pynndescent") is not None:
        return share_neighbors(approximate(points, n_neighbors), kind, has_ring)
    if n >= exact_below:
        minutes = f"{_SECONDS_A_PAIR * n * n / 60:.0f} minutes on two cores"
        warn_user(
            f"The exact neighbours of {n:,} rows may take {minutes}. A search that is nearly exact "
            "and much faster needs: pip install pynndescent"
        )
    return share_neighbors(exact(points, n_neighbors, verbose=verbose), kind, has_ring)


# The two searches


def exact(
    points: np.ndarray, n_neighbors: int, queries: np.ndarray | None = None, verbose: Any = 0
) -> np.ndarray:
    """Neighbours (q, n_neighbors) of rows `queries` (q,) among points (n, c), by all distances."""
    if queries is None:
        queries = np.arange(len(points))
    # Trees take 17 times as long: in 50 dimensions they visit most points. The brute-force search
    # computes distances of float32 rows in float64, because in float32 the distances of near rows
    # would lose digits.
    index = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(points)
    neighbors = np.empty((queries.size, n_neighbors), dtype=np.int32)
    starts, options = range(0, queries.size, _BLOCK), {"unit": " rows", "unit_scale": _BLOCK}
    for start in progress_bar(verbose, iterable=starts, desc="neighbours", leave=False, **options):
        block = queries[start : start + _BLOCK]
        nearest = index.kneighbors(points[block], return_distance=False)
        neighbors[start : start + _BLOCK] = _without_self(nearest, block, n_neighbors)
    return neighbors


def approximate(points: np.ndarray, n_neighbors: int) -> np.ndarray:
    """Neighbours (n, n_neighbors) among points (n, c), by pynndescent."""
    # pynndescent may warn that it finds too few neighbours for some rows. For these rows the exact
    # search below is used.
    from pynndescent import NNDescent

    n_asked = min(n_neighbors + 1 + _SPARE, len(points))
    nearest, _ = NNDescent(points, n_neighbors=n_asked, random_state=_SEED).neighbor_graph
    neighbors = _without_self(nearest, np.arange(len(points)), n_neighbors)
    incomplete = np.flatnonzero((neighbors < 0).any(axis=1))
    if incomplete.size:
        neighbors[incomplete] = exact(points, n_neighbors, incomplete)
    return neighbors


def _without_self(nearest: np.ndarray, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """The first (len(rows), n_neighbors) of the nearest that are not the row itself, int32."""
    is_self = nearest == rows[:, None]
    # Points at distance 0 may crowd out the row itself; the last one is then left out.
    is_self[~is_self.any(axis=1), -1] = True
    return nearest[~is_self].reshape(len(rows), -1)[:, :n_neighbors].astype(np.int32)


# Equal rows


def _digests(X: np.ndarray) -> Iterator[bytes]:
    """A hash of 16 bytes for each row of X (n, ...), read by blocks; 0.0 and -0.0 are equal."""
    for block in gen_batches(len(X), _BLOCK):
        for row in np.ascontiguousarray(X[block] + 0.0):  # turns -0.0 into 0.0
            yield blake2b(row.data, digest_size=16).digest()


def distinct_rows(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index (m,) of the first row of each kind of equal rows, sorted; the kind (n,) of each row."""
    # Not np.unique of the rows themselves, because it copies them: 685 MB for 60,000 digits.
    digests = np.fromiter(_digests(X), dtype="V16", count=len(X))
    _, first_row, kind = np.unique(digests, return_index=True, return_inverse=True)
    order = np.argsort(first_row)  # np.unique sorts kinds by their hashes
    return first_row[order], np.argsort(order)[kind]


def share_neighbors(neighbors: np.ndarray, kind: np.ndarray, has_ring: bool) -> np.ndarray:
    """Neighbours (n, k) of all rows, from those (m, k) of each kind and each row's kind (n,).

    Rows of a kind form a ring: each has the next one as its first neighbour, before those found
    for its kind. Without rings it has only the latter.
    """
    by_kind = np.argsort(kind, kind="stable").astype(np.int32)  # equal rows are side by side
    sizes = np.bincount(kind)
    first = np.cumsum(sizes) - sizes  # where each kind begins in `by_kind`
    # A neighbour is a kind of m rows: row i links to the row number i mod m of that kind.
    near_kinds = neighbors[kind]
    place = np.arange(kind.size)[:, None] % sizes[near_kinds]
    shared = by_kind[first[near_kinds] + place]
    if has_ring:
        next_equal = np.empty_like(by_kind)
        next_equal[by_kind[:-1]] = by_kind[1:]
        next_equal[by_kind[first + sizes - 1]] = by_kind[first]  # closes the ring of each kind
        equal = np.flatnonzero(sizes[kind] > 1)
        shared[equal, 1:] = shared[equal, :-1]
        shared[equal, 0] = next_equal[equal]
    return shared


# Principal components


def have_one_length(X: np.ndarray) -> bool:
    """Whether rows of X (n, p), up to a thousand of them, have the same norm above 0."""
    lengths = np.linalg.norm(np.asarray(X[:: -(-len(X) // 1_000)], np.float64), axis=1)
    return bool(lengths.max() > 0 and np.ptp(lengths) <= _SAME_LENGTH * lengths.max())


def principal_components(
    X: np.ndarray, n_components: int = _N_COMPONENTS, *, most_entries: int = 50_000_000
) -> np.ndarray:
    """First principal components (n, n_components) of rows (n, p), in float32.

    Rows are centred in float64. Components are learned from a sample of rows. It has at most
    `most_entries` numbers (400 MB), or 10 rows a component if those are more. Up to 2,000
    features, components are the eigenvectors of the covariance, which take a second. Beyond that
    the solver is randomized.
    """
    n, p = X.shape
    rows: Any = slice(None)
    most = max(most_entries // p, 10 * n_components)
    if n > most:  # sorted: a memory map is read from its beginning to its end
        rows = np.sort(np.random.default_rng(_SEED).choice(n, most, replace=False))
    sample = X[rows].astype(np.float64)
    mean, axes = sample.mean(axis=0), None
    if n_components < min(n, p):
        solver = "covariance_eigh" if p <= 2_000 else "randomized"
        pca = PCA(n_components, svd_solver=solver, copy=False, random_state=_SEED).fit(sample)
        axes = pca.components_.T
    projected = np.empty((n, p if axes is None else n_components), dtype=np.float32)
    for block in gen_batches(n, _BLOCK):
        centred = X[block] - mean
        projected[block] = centred if axes is None else centred @ axes
    return projected


# The graph


def neighbor_graph(
    X: np.ndarray,
    *,
    n_neighbors: int = 10,
    n_components: Any = "auto",
    graph: Any = None,
    verbose: Any = 0,
) -> csr_array:
    """Edges (n, n) from each row of finite X (n, p) to its nearest, weighed by shared neighbours.

    `graph` is a matrix of weights instead of the search. Edges are directed: more walks then end in
    the class where they started than with edges in both directions.
    """
    if graph is not None:
        return _checked(graph, X.shape[0])
    neighbors = nearest_neighbors(X, n_neighbors, n_components, verbose=verbose)
    indptr = np.arange(0, neighbors.size + 1, neighbors.shape[1])
    ones = np.ones(neighbors.size, dtype=np.float32)
    edges = csr_array((ones, neighbors.ravel(), indptr), shape=(len(X), len(X)))
    edges.sort_indices()
    return weighed_by_shared_neighbors(edges)


def _checked(graph: Any, n: int) -> csr_array:
    """The weights of a matrix (n, n) that are above 0 and not on its diagonal."""
    if graph.shape != (n, n):
        raise ValueError(f"graph must be of shape ({n}, {n}), for {n} rows of X: got {graph.shape}")
    dtypes: Any = [np.float64, np.float32]  # other types become float64
    with add_error_context("graph must hold finite numbers >= 0"):
        weights = check_array(graph, accept_sparse=True, dtype=dtypes, ensure_non_negative=True)
    edges = csr_array(weights).tocoo()
    is_edge = (edges.row != edges.col) & (edges.data > 0)
    if not is_edge.any():
        raise ValueError("graph has no edge: all its weights off the diagonal are zero.")
    ends = edges.row[is_edge], edges.col[is_edge]
    return csr_array((edges.data[is_edge], ends), shape=(n, n))


def weighed_by_shared_neighbors(graph: csr_array, block_size: int = 1_000_000) -> csr_array:
    """The edges of a graph, each of weight (1 + shared neighbours of its two rows) squared.

    Rows of one dense region share most of their neighbours. An edge between two regions joins rows
    that share few (Jarvis & Patrick, 1973). Edges are processed in blocks, whose rows have at most
    `block_size` neighbours in all (about 25 MB). A block has at least one edge.
    """
    ones = np.ones(graph.nnz, dtype=np.float32)
    edges = csr_array((ones, graph.indices, graph.indptr), shape=graph.shape)
    degrees = np.diff(edges.indptr)
    starts = np.repeat(np.arange(edges.shape[0]), degrees)
    shared = np.empty(edges.nnz, dtype=np.float32)
    # Compares the two rows of each edge. A product of matrices would compare all pairs of rows.
    # Nearly all pairs share some popular neighbour, so the product would be almost dense.
    edges_a_block = max(block_size // (2 * int(degrees.max(initial=1))), 1)
    for block in gen_batches(edges.nnz, edges_a_block):
        both = edges[starts[block]].multiply(edges[edges.indices[block]])
        shared[block] = both.sum(axis=1)
    edges.data = (1 + shared) ** 2
    return edges
