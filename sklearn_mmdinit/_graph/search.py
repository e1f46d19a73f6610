"""The two searches for nearest neighbours: of all distances, and among neighbours' neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from joblib import effective_n_jobs
from sklearn.neighbors import NearestNeighbors
from tqdm import tqdm

__all__ = ["INSTALL", "MISSING", "SEARCHES", "Search", "approximate", "exact", "exact_neighbors"]

INSTALL = "pip install 'sklearn_mmdinit[neighbors]'"

MISSING = f"algorithm='approximate' needs pynndescent: {INSTALL}"

_QUERIES = 4096  # rows whose neighbours are searched at a time: a step of the progress bar

# Neighbours that the approximate search is asked for beyond those needed: at 60,000 digits they
# raise the part of the nearest that it finds from 98.3 to 99.6 %, and take no longer.
_SPARE = 5


def exact(
    points: np.ndarray, n_neighbors: int, n_jobs: int | None, seed: int, verbose: int
) -> np.ndarray:
    """All distances, in float64 from float32 rows: no cancellation between near ones."""
    return exact_neighbors(points, np.arange(len(points)), n_neighbors, verbose)


def exact_neighbors(
    points: np.ndarray, queries: np.ndarray, n_neighbors: int, verbose: int = 0
) -> np.ndarray:
    """Nearest neighbours of some of the points among all, by all their distances.

    Parameters
    ----------
    points : ndarray of shape (n, c), float32
        Points, more than `n_neighbors`.
    queries : ndarray of shape (q,), int
        Which of them to find the neighbours of.
    n_neighbors : int
        How many, each point itself left out.
    verbose : int, default=0
        Above 0 a progress bar is shown.

    Returns
    -------
    neighbors : ndarray of shape (q, n_neighbors), int32
        Row numbers, the nearest first.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit._graph.search import exact_neighbors
    >>> points = np.array([[0], [1], [3], [7]], dtype=np.float32)
    >>> exact_neighbors(points, np.array([0, 3]), 2)
    array([[1, 2],
           [2, 1]], dtype=int32)
    """
    # In 50 dimensions trees look at most points all the same, and are 17 times slower.
    index = NearestNeighbors(n_neighbors=n_neighbors + 1, algorithm="brute").fit(points)
    neighbors = np.empty((queries.size, n_neighbors), dtype=np.int32)
    with tqdm(
        total=queries.size, desc="neighbours", unit=" rows", leave=False, disable=verbose <= 0
    ) as bar:
        for start in range(0, queries.size, _QUERIES):
            block = queries[start : start + _QUERIES]
            found = index.kneighbors(points[block], return_distance=False)
            neighbors[start : start + _QUERIES] = _without_self(found, block, n_neighbors)
            bar.update(block.size)
    return neighbors


def approximate(
    points: np.ndarray, n_neighbors: int, n_jobs: int | None, seed: int, verbose: int
) -> np.ndarray:
    """Neighbours of neighbours, by pynndescent."""
    rows = np.arange(len(points))
    # numba warns of what it compiles anew in each process, pynndescent of rows with too few
    # neighbours, which get them below.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from pynndescent import NNDescent
        except ImportError as error:
            raise ImportError(MISSING) from error
        found, _ = NNDescent(
            points,
            n_neighbors=min(n_neighbors + 1 + _SPARE, len(points)),
            random_state=seed,
            n_jobs=_numba_threads(n_jobs),
        ).neighbor_graph
    neighbors = _without_self(found, rows, n_neighbors)
    incomplete = np.flatnonzero((neighbors < 0).any(axis=1))
    if incomplete.size:
        neighbors[incomplete] = exact_neighbors(points, incomplete, n_neighbors)
    return neighbors


def _numba_threads(n_jobs: int | None) -> int | None:
    if n_jobs is None:
        return None
    import numba

    # numba refuses more threads than it has.
    return min(effective_n_jobs(n_jobs), numba.get_num_threads())


def _without_self(found: np.ndarray, rows: np.ndarray, n_neighbors: int) -> np.ndarray:
    """What was found without the row itself, (len(rows), n_neighbors) int32.

    Among points of no distance the row itself may come late or not at all: then the last
    goes in its place.
    """
    itself = found == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    rest = found[~itself].reshape(len(rows), -1)
    return rest[:, :n_neighbors].astype(np.int32)


Search = Callable[[np.ndarray, int, "int | None", int, int], np.ndarray]

SEARCHES: dict[str, Search] = {"exact": exact, "approximate": approximate}
