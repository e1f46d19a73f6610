"""Claim: exact neighbour search is the cheaper one up to about 100,000 rows, pynndescent beyond.

Seconds of both for 10 neighbours in 50 principal components, and which part of the true neighbours
the approximate search finds. Beyond 60,000 rows the exact time is that of some of the queries,
times how many more there are. numba compiles the approximate search anew in each process: that
stands beside. More rows than MNIST has are its images over again, each with noise of its own.

Run it (about 8 minutes on two cores)::

    pip install 'sklearn_mmdinit[neighbors]'
    python benchmarks/neighbors.py

It prints the figures and writes them to ``neighbors.json`` in the output folder.
"""

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from data.datasets import DATASETS, standardize
from protocol.command import add_data_options, command_parser
from protocol.store import provenance, write_json
from sklearn_mmdinit._core.graph import search
from timing.clock import timed

N_NEIGHBORS = 10
SIZES = (20_000, 60_000, 100_000, 200_000, 1_000_000)
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


def measure(rows: np.ndarray) -> dict[str, Any]:
    """Both searches on the same points, and what comes before them."""
    n = len(rows)
    queries = np.arange(n)
    if n > ALL_QUERIES_UP_TO:
        queries = np.sort(np.random.default_rng(1).choice(n, QUERIES, replace=False))
    found: dict[str, np.ndarray] = {}

    def seconds(name: str, call: Callable[[], Any]) -> float:
        return round(timed(lambda: found.update({name: call()})), 2)

    record: dict[str, float] = {"rows": n, "exact_queries_timed": len(queries)}
    record |= {
        f"{name}_seconds": seconds(name, call)
        for name, call in (
            ("distinct_rows", lambda: search.distinct_rows(rows)),
            ("projection", lambda: search.principal_components(rows)),
            ("exact", lambda: search.exact(found["projection"], N_NEIGHBORS, queries)),
            ("approximate", lambda: search.approximate(found["projection"], N_NEIGHBORS)),
        )
    }
    right = found["approximate"][queries][:, :, None] == found["exact"][:, None, :]
    record["exact_seconds"] = round(record["exact_seconds"] * n / len(queries), 1)
    return record | {"approximate_recall": round(float(right.any(axis=1).mean()), 4)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command_parser(__doc__)
    add_data_options(parser)
    options = parser.parse_args(arguments)
    X = standardize(DATASETS[options.dataset](options.data_dir))[0]
    few = search.principal_components(X[:500])
    compiling = timed(lambda: search.approximate(few, N_NEIGHBORS))
    report: dict[str, Any] = provenance()
    report["versions"] |= {name: version(name) for name in ("pynndescent", "numba", "llvmlite")}
    report |= {"load_average": os.getloadavg()[0]}  # other programs lengthen it all
    report |= {"n_neighbors": N_NEIGHBORS, "n_components": search.N_COMPONENTS, "noise": NOISE}
    report |= {"compile_seconds": round(compiling, 1), "sizes": []}
    for n in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            report["sizes"].append(measure(repeated(X, n, Path(folder))))
        print(json.dumps(report["sizes"][-1]), flush=True)
    write_json(options.output / "neighbors.json", report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
