"""Claim: exact neighbour search is the cheaper one up to about 100,000 rows, pynndescent beyond.

For several numbers of rows, all in one run on one machine: seconds of the exact search and of
the approximate one for 10 neighbours in the first 50 principal components, and which part of
the true neighbours the approximate one finds. Beyond 60,000 rows the exact time is that of some
of the queries, times how many more there are: it is the same work for each. numba compiles
the approximate search anew in each process: that stands beside, from a search of 500 rows.
More rows than MNIST has are its images over again, each with noise of its own.

Run it (about 8 minutes on two cores, or 2 with ``--quick``, which stops at 60,000 rows)::

    pip install 'sklearn_mmdinit[neighbors]'
    python benchmarks/neighbors.py
    python benchmarks/neighbors.py --rows mnist.npy

It prints the figures and writes them to ``neighbors.json`` in the output folder.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from data.datasets import load_mnist, standardize
from protocol.provenance import provenance
from protocol.store import write_json

# No public names: the searches apart from the graph that they are for.
from sklearn_mmdinit._graph.distinct import distinct_rows
from sklearn_mmdinit._graph.projection import principal_components
from sklearn_mmdinit._graph.search import approximate, exact_neighbors

__all__ = ["main"]

N_NEIGHBORS, N_COMPONENTS = 10, 50
QUICK = (20_000, 60_000)
FULL = (*QUICK, 100_000, 200_000, 1_000_000)
ALL_QUERIES_UP_TO, QUERIES = 60_000, 4096
NOISE = 0.5  # standard deviation; that of a pixel over all images is 1


def repeated(X: np.ndarray, n: int, folder: Path) -> np.ndarray:
    """`n` rows, those beyond the first pass with noise, as a memory map."""
    shape, rng = (n, X.shape[1]), np.random.default_rng(0)
    rows = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=X.dtype, shape=shape)
    for start in range(0, n, 10_000):
        block = np.arange(start, min(start + 10_000, n))
        noise = NOISE * rng.standard_normal((len(block), X.shape[1]), dtype=np.float32)
        rows[block] = X[block % len(X)] + noise * (block >= len(X))[:, None]
    return rows


def seconds(call: Any, *arguments: Any) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    answer = call(*arguments)
    return time.perf_counter() - start, answer


def measure(rows: np.ndarray) -> dict[str, Any]:
    """Both searches on the same points, and what comes before them."""
    n = len(rows)
    finding, _ = seconds(distinct_rows, rows)
    projecting, points = seconds(principal_components, rows, N_COMPONENTS)
    queries = np.arange(n)
    if n > ALL_QUERIES_UP_TO:
        queries = np.sort(np.random.default_rng(1).choice(n, QUERIES, replace=False))
    searching, nearest = seconds(exact_neighbors, points, queries, N_NEIGHBORS)
    approximating, found = seconds(approximate, points, N_NEIGHBORS, None, 0, 0)
    right = (found[queries][:, :, None] == nearest[:, None, :]).any(axis=1)
    return {
        "rows": n,
        "distinct_rows_seconds": round(finding, 2),
        "projection_seconds": round(projecting, 2),
        "exact_seconds": round(searching * n / queries.size, 1),
        "exact_queries_timed": queries.size,
        "approximate_seconds": round(approximating, 1),
        "approximate_recall": round(float(right.mean()), 4),
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="20,000 and 60,000 rows only")
    parser.add_argument("--rows", type=Path, help="a .npy file of rows in place of MNIST")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args(arguments)
    X = standardize(load_mnist())[0] if options.rows is None else np.load(options.rows)
    few = principal_components(X[:500], N_COMPONENTS)
    compiling, _ = seconds(approximate, few, N_NEIGHBORS, None, 0, 0)
    report: dict[str, Any] = provenance()
    report["versions"] |= {name: version(name) for name in ("pynndescent", "numba", "llvmlite")}
    report |= {
        "load_average": os.getloadavg()[0],  # other programs lengthen it all
        "n_neighbors": N_NEIGHBORS,
        "n_components": N_COMPONENTS,
        "noise": NOISE,
        "compile_seconds": round(compiling, 1),
        "sizes": [],
    }
    for n in QUICK if options.quick else FULL:
        with tempfile.TemporaryDirectory() as folder:
            report["sizes"].append(measure(repeated(X, n, Path(folder))))
        print(json.dumps(report["sizes"][-1]), flush=True)
    write_json(options.output / "neighbors.json", report)
    return report


if __name__ == "__main__":
    main()
