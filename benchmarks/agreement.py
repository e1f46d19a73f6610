"""Claim: a few labels tell before any training whether a coherent start may help.

``diagnostics.neighbor_agreement`` tells held-out labels by neighbours and by a linear model. On the
sets of ``real_data.py``, for the labels drawn there: which of the two tells more, beside what the
network with coherence gained over fresh weights. Gains are those that ``real_data.py`` has
written, means over draws. Run it after that (ten minutes on one core)::

    python benchmarks/agreement.py --results benchmarks/results
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.tables import SPLITS, load
from protocol.backends import local_workers
from protocol.command import add_output_options, command_parser, run_command, say
from protocol.sets import Prepared, partly_labelled, prepared
from reporting.data_tables import draws_of
from reporting.results import Library
from reporting.tables import text_of
from sklearn_mmdinit.diagnostics import neighbor_agreement

SPLIT, N_LABELS, DRAWS = "development", (5, 20), 2


def _told(n_labels: int, data: Prepared) -> dict[str, Any]:
    """What neighbours and a linear model tell (%), the mean over draws; runs in a worker."""
    found = []
    for draw in range(DRAWS):
        y = partly_labelled(data, n_labels, draw)
        agreement = neighbor_agreement(data.X, y, random_state=data.seed)
        found.append((agreement.neighbors, agreement.linear))
    neighbors, linear = 100.0 * np.mean(found, axis=0)
    return {"set": data.name, "n_labels": n_labels, "neighbors": neighbors, "linear": linear}


def _prepare(options: argparse.Namespace) -> tuple[argparse.Namespace, pd.Series]:
    accuracies = draws_of(Library(options.results).results(f"real-data-{SPLIT}.json"))
    gains = accuracies["coherence"] - accuracies["scratch"]
    return options, gains.groupby(["set", "n_labels"]).mean().rename("gain")


def _measure(job: tuple[argparse.Namespace, pd.Series]) -> dict[str, Any]:
    options, gain = job
    calls = []
    for name in SPLITS[SPLIT]:
        data = prepared(load(name, options.data_dir, partial(say, options)), options.seed)
        cells = [n for of, n in gain.index if of == name and n in N_LABELS]
        calls += [((n,), (data,)) for n in cells]
    told = pd.DataFrame(list(local_workers(options.jobs).results(_told, calls)))
    records = told.join(gain, on=["set", "n_labels"]).sort_values(["n_labels", "set"])
    settings = {"split": SPLIT, "draws": DRAWS, "n_labels": N_LABELS}
    return {"settings": settings, "records": records.round(2).to_dict("records")}


def main(argv: Sequence[str] | None = None) -> int:
    parser = command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--results", type=Path, required=True, help="folder with what real_data.py has written")
    add("--data-dir", type=Path, help="as of real_data.py")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    add_output_options(parser)
    return run_command(parser, argv, _prepare, _measure, text_of("agreement"))


if __name__ == "__main__":
    raise SystemExit(main())
