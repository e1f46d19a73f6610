"""The graph whose edges join similar examples: from a search, or given by the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.frozen import FrozenEstimator
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_array

from .._base.random_streams import seeds_of
from .._base.validation import add_error_context
from .neighbors import nearest_neighbors


def neighbor_graph(
    X: np.ndarray,
    *,
    n_neighbors: int = 10,
    n_components: Any = "auto",
    graph: Any = None,
    verbose: Any = 0,
) -> csr_array:
    """Weights (n, n) of edges from each of the finite rows X (n, p) to the rows near it.

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


def check_graph(graph: Any) -> None:
    """Raise a TypeError unless the graph is None or a matrix."""
    is_matrix = issparse(graph) or isinstance(graph, np.ndarray)
    if not (graph is None or is_matrix) or isinstance(graph, np.ma.MaskedArray):
        valid = "None or a matrix of similarities, best a sparse one"
        raise TypeError(f"graph must be {valid}, got {graph!r}")


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
