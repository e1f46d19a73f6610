"""The graph whose edges join near rows: from a search, or given by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_array, check_memory

from .._base.random_streams import seeds_of
from .._base.validation import add_error_context
from .neighbors import nearest_neighbors


def neighbor_graph(
    X: np.ndarray,
    *,
    n_neighbors: int = 10,
    n_components: Any = "auto",
    shared_neighbor_power: float = 0.0,
    graph: Any = None,
    memory: Any = None,
    verbose: Any = 0,
) -> csr_array:
    """Weights (n, n) of edges from each of the finite rows X (n, p) to the rows near it.

    A `graph` is a matrix of weights, or a transformer whose ``fit_transform(X)`` has the edges.
    Edges are directed: more walks then end in the class where they started than with edges in both
    directions.
    """
    if is_matrix(graph):
        return _checked(graph, X.shape[0])
    if graph is None:
        search = check_memory(memory).cache(nearest_neighbors, ignore=["verbose"])
        neighbors = search(X, n_neighbors, n_components, verbose=verbose)
        indptr = np.arange(0, neighbors.size + 1, neighbors.shape[1])
        ones = np.ones(neighbors.size, dtype=np.float32)
        edges = csr_array((ones, neighbors.ravel(), indptr), shape=(len(X), len(X)))
        edges.sort_indices()
    else:
        if hasattr(graph, "get_params") and hasattr(graph, "set_params"):
            graph = clone(graph)
            seed_(graph, 0)
        edges = on_read_only(f"graph={type(graph).__name__}", graph.fit_transform, X)
        if not issparse(edges):
            raise TypeError(f"graph's fit_transform must give a sparse matrix: got {type(edges)}.")
        edges = csr_array(edges)
        # Stored entries may be distances, not weights. A stored 0 is an edge too: equal rows have
        # the distance 0.
        ones = np.ones_like(edges.data)
        edges = _checked(csr_array((ones, edges.indices, edges.indptr), edges.shape), X.shape[0])
    return weighed_by_shared_neighbors(edges, shared_neighbor_power)


def is_matrix(graph: Any) -> bool:
    """Whether a graph is given by its weights."""
    return issparse(graph) or isinstance(graph, np.ndarray)


def check_graph(graph: Any) -> None:
    """Raise a TypeError unless the graph is None, a matrix or has ``fit_transform``."""
    if isinstance(graph, np.ma.MaskedArray):
        raise TypeError("graph must not be a masked array: give graph.filled(0), or a sparse one.")
    transformer = hasattr(graph, "fit_transform") and not isinstance(graph, type)
    if not (graph is None or is_matrix(graph) or transformer):
        valid = "None, a matrix or an object with fit_transform, such as KNeighborsTransformer()"
        raise TypeError(f"graph must be {valid}: got {graph!r}.")


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


def weighed_by_shared_neighbors(
    graph: csr_array, power: float, block_size: int = 1_000_000
) -> csr_array:
    """The edges of a graph, each of weight (1 + shared neighbours of its two rows) ** power.

    Rows of one dense region share most of their neighbours. An edge between two regions joins rows
    that share few (Jarvis & Patrick, 1973). Edges are processed in blocks, whose rows have at most
    `block_size` neighbours in all (about 25 MB). A block has at least one edge.
    """
    ones = np.ones(graph.nnz, dtype=np.float32)
    edges = csr_array((ones, graph.indices, graph.indptr), shape=graph.shape)
    if power == 0.0:
        return edges
    degrees = np.diff(edges.indptr)
    starts = np.repeat(np.arange(edges.shape[0]), degrees)
    shared = np.empty(edges.nnz, dtype=np.float32)
    # Compares the two rows of each edge. A product of matrices would compare all pairs of rows.
    # Nearly all pairs share some popular neighbour, so the product would be almost dense.
    edges_a_block = max(block_size // (2 * int(degrees.max(initial=1))), 1)
    for block in gen_batches(edges.nnz, edges_a_block):
        both = edges[starts[block]].multiply(edges[edges.indices[block]])
        shared[block] = both.sum(axis=1)
    with np.errstate(over="ignore"):  # the error below reports it
        edges.data = (1 + shared) ** np.float32(power)
    if not np.isfinite(edges.data).all():
        raise ValueError(
            f"shared_neighbor_power={power} makes weights too large for float32: use a smaller one"
        )
    return edges


# Transformers that a user brings


def on_read_only(name: str, function: Callable[[np.ndarray], Any], X: np.ndarray) -> Any:
    """``function(X)`` for a read-only view of X; an error gets a note with `name`."""
    view = X.view()
    view.flags.writeable = False
    with add_error_context(f"{name} got X as a read-only array: it must copy what it changes"):
        return function(view)


def seed_(estimator: Any, seed: int) -> None:
    """Replace every ``random_state`` that is None, except in frozen estimators."""
    if isinstance(estimator, FrozenEstimator):
        return
    parameters = estimator.get_params()
    frozen = tuple(f"{name}__" for name, v in parameters.items() if isinstance(v, FrozenEstimator))
    names = sorted(
        name
        for name, value in parameters.items()
        if value is None and name.rpartition("__")[2] == "random_state"
        if not name.startswith(frozen)
    )
    estimator.set_params(**dict(zip(names, seeds_of(seed, len(names)), strict=True)))
