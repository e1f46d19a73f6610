"""Whole fits with ``coherence="auto"``, each in a process of its own: seconds and peak memory.

Run by itself, as ``python -m timing.fits ROWS COLUMNS``, it prints both.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

from sklearn_mmdinit import MMDInitializer
from timing.clock import timed
from timing.probe import grown_by, process_of

# Tables, MNIST's images, and as many rows as make the search of neighbours another one.
SIZES = ((2_000, 50), (20_000, 50), (60_000, 784), (1_000_000, 50))
N_FACTORS = 10


def _rows(n: int, n_columns: int) -> np.ndarray:
    """Rows near a plane of few dimensions, as those of real tables are."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, N_FACTORS), np.float32) @ rng.standard_normal(
        (N_FACTORS, n_columns), np.float32
    )
    X += rng.standard_normal(X.shape, np.float32)
    return X / X.std()


def measure_coherent_fits(sizes: tuple[tuple[int, int], ...] = SIZES) -> list[dict[str, Any]]:
    """Seconds of fit, and by how many bytes its process grew meanwhile, for each size."""
    found = []
    for size in sizes:
        said = subprocess.run(**process_of("timing.fits", *map(str, size)), check=True)
        seconds, peak = said.stdout.split()[-2:]
        found.append(
            {"rows": size[0], "columns": size[1], "seconds": float(seconds), "peak": int(peak)}
        )
    return found


if __name__ == "__main__":
    X = _rows(*map(int, sys.argv[1:]))
    hidden = (392, 392, 392) if X.shape[1] == 784 else (256, 256)  # the paper's for images
    init = MMDInitializer(hidden, coherence="auto", random_state=0)
    taken: list[float] = []
    peak = grown_by(lambda: taken.append(timed(lambda: init.fit(X))))
    print(round(taken[0], 2), peak)
