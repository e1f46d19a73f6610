"""Claim: of Fashion-MNIST's edges one in five joins two classes, of MNIST's one in twenty-three.

The edges that coherence walks along: from each training image to its ten nearest ones, among the
pixels or among oriented gradients. A step chooses an edge by the neighbours that its ends share, so
that fewer steps than edges lead to another class. Run it (six minutes on two cores)::

    python benchmarks/edges.py
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from data.datasets import DATASETS, standardize
from protocol.command import add_output_options, command_parser, run_command
from protocol.evaluation import say
from protocol.methods import EMBEDDINGS
from reporting.tables import text_of
from sklearn_mmdinit import Coherence
from sklearn_mmdinit._core.graph.edges import neighbor_graph


def shares(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Which part of the edges among rows X of classes y, and of steps, join two classes (%)."""
    own = Coherence()
    graph = neighbor_graph(
        X, n_neighbors=own.n_neighbors, shared_neighbor_power=own.shared_neighbor_power
    ).tocoo()
    other = y[graph.row] != y[graph.col]
    weights = graph.data / np.bincount(graph.row, graph.data)[graph.row]
    steps = np.bincount(graph.row, weights * other)
    return {"edges": 100.0 * float(other.mean()), "steps": 100.0 * float(steps.mean())}


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    records: list[dict[str, Any]] = []
    for name in options.datasets:
        dataset = DATASETS[name](options.data_dir, partial(say, options))
        X = standardize(dataset)[0]
        for among, embedding in EMBEDDINGS.items():
            say(options, f"{name}: neighbours among {among}")
            rows = X if embedding is None else clone(embedding).fit_transform(X)
            records.append({"dataset": name, "among": among} | shares(rows, dataset.y_train))
    return {"settings": {"n_neighbors": Coherence().n_neighbors}, "records": records}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    add = parser.add_argument
    both = ("mnist", "fashion-mnist")
    add("--datasets", nargs="+", choices=DATASETS, default=both, help=f"default: {' '.join(both)}")
    add("--data-dir", type=Path, help="a folder with the four IDX files of one dataset")
    add_output_options(parser)
    text = partial(text_of, kinds=("edges",))
    return run_command(parser, argv, lambda options: options, _measure, text)


if __name__ == "__main__":
    raise SystemExit(main())
