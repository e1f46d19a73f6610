"""Nearest neighbours of each row among the others, exact or nearly so."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np

from .distinct import distinct_rows, share_neighbors
from .projection import principal_components
from .search import INSTALL, MISSING, SEARCHES

__all__ = ["ALGORITHMS", "EXACT_BELOW", "check_search", "nearest_neighbors"]

ALGORITHMS = ("auto", *SEARCHES)

# Rows from which the approximate search is the cheaper one, with the 24 s that numba takes to
# compile it in each process: benchmarks/neighbors.py has 7 s against 1 at 60,000 rows, 22 against
# 1.4 at 100,000, 33 minutes against 13 s at a million.
EXACT_BELOW = 100_000

# Of one distance in 50 dimensions on two cores, for a forecast of how long a search will take.
_SECONDS_A_PAIR = 2e-9


def nearest_neighbors(
    X: np.ndarray,
    n_neighbors: int,
    *,
    n_components: int | None = 50,
    algorithm: str = "auto",
    n_jobs: int | None = None,
    seed: int = 0,
    verbose: int = 0,
) -> np.ndarray:
    """Euclidean nearest neighbours of each row among the others, in principal components.

    Equal rows are searched once and stand in a ring, each the nearest neighbour of another; the
    rest of their neighbours are rows different from them. So however many copies there are, a
    path leads out of them and to each of them. Rows that differ in X but not in the components
    are not looked for.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Rows, a NumPy memory map among others. Finite: that is for the caller to check.
    n_neighbors : int
        How many neighbours each row gets, at least 1.
    n_components : int or None, default=50
        Principal components to measure distances in; None, or at least the smaller of n and p:
        the rows as they are.
    algorithm : {"auto", "exact", "approximate"}, default="auto"
        "exact" measures all distances. "approximate" is pynndescent, which finds more than
        99 % of the neighbours among images of digits. "auto" is exact below 100,000 different rows
        and approximate from there on; exact with a warning where pynndescent is not installed.
    n_jobs : int or None, default=None
        Threads of the approximate search; None and -1: all. The exact search takes those that
        OpenMP may use. pynndescent repeats itself for equal `seed` and `n_jobs` only.
    seed : int, default=0
        Of what is drawn at random: the approximate search, and rows of large arrays from which
        the components are learned.
    verbose : int, default=0
        Above 0 the exact search shows a progress bar.

    Returns
    -------
    neighbors : ndarray of shape (n, n_neighbors), int32
        Row numbers, the nearest first, without the row itself and without repetition.

    Raises
    ------
    ValueError
        If there are too few rows, or too few that differ from each other, for that many
        neighbours; if a count is below 1 or `algorithm` is none of those above.
    ImportError
        If `algorithm` is "approximate" and pynndescent is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit._graph.neighbors import nearest_neighbors
    >>> nearest_neighbors(np.array([[0.0], [1.0], [3.0], [7.0]]), 2)
    array([[1, 2],
           [0, 2],
           [1, 0],
           [2, 1]], dtype=int32)
    """
    check_search(X.shape[0], n_neighbors, n_components, algorithm)
    first, place = distinct_rows(X)
    if first.size == 1:
        raise ValueError(f"All {X.shape[0]} rows are equal: there are no neighbours to search.")
    if first.size <= n_neighbors:
        raise ValueError(
            f"Only {first.size} of the {X.shape[0]} rows differ from each other: too few for "
            f"n_neighbors={n_neighbors}. Lower n_neighbors to {first.size - 1} or less "
            "in Coherence(n_neighbors=...), or give more rows."
        )
    points = principal_components(X, n_components, seed=seed)
    if first.size < place.size:
        points = points[first]
    if algorithm == "auto":
        algorithm = _algorithm_for(len(points))
    neighbors = SEARCHES[algorithm](points, n_neighbors, n_jobs, seed, verbose)
    return neighbors if first.size == place.size else share_neighbors(neighbors, place)


def check_search(n_rows: int, n_neighbors: int, n_components: int | None, algorithm: str) -> None:
    """Raise a ValueError if :func:`nearest_neighbors` cannot search among so many rows.

    An ImportError if what it was told to search with is not installed.
    """
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1: got {n_neighbors}.")
    if n_components is not None and n_components < 1:
        raise ValueError(f"n_components must be None or at least 1: got {n_components}.")
    if algorithm not in ALGORITHMS:
        choices = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(f"algorithm must be one of {choices}: got {algorithm!r}.")
    if n_rows <= n_neighbors:
        raise ValueError(
            f"{n_rows} rows are too few for n_neighbors={n_neighbors}, which takes "
            f"{n_neighbors + 1} rows at least. Lower n_neighbors or give more rows."
        )
    if algorithm == "approximate" and find_spec("pynndescent") is None:
        raise ImportError(MISSING)


def _algorithm_for(n: int) -> str:
    if n < EXACT_BELOW:
        return "exact"
    if find_spec("pynndescent") is not None:
        return "approximate"
    warnings.warn(
        f"The exact neighbours of {n} rows may take {_SECONDS_A_PAIR * n * n / 60:.0f} minutes on "
        f"two cores. A search that is nearly exact and much faster needs: {INSTALL}",
        stacklevel=3,
    )
    return "exact"
