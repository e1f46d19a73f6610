"""Claim: a few labels tell before any training whether a coherent start may help.

``diagnostics.neighbor_agreement`` tells held-out labels by neighbours and by a linear model. On the
sets of ``real_data.py``, for the labels drawn there: which of the two tells more, beside what the
network with coherence gained over fresh weights. Gains are those that ``real_data.py`` has
written, means over draws. Run it after that (ten minutes on one core)::

    python benchmarks/agreement.py --results benchmarks/results
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.labelled_sets import SPLITS, load
from protocol import command
from protocol.backends import Call, local_workers
from protocol.sets import Prepared, labelled_rows, partly_labelled, prepared
from reporting.data_tables import draws_of
from reporting.results import Library
from reporting.tables import publish
from sklearn_mmdinit.diagnostics import neighbor_agreement

SPLIT, N_LABELS, DRAWS = "development", (5, 20), 2


def share_right(n_labels: int, data: Prepared) -> dict[str, Any]:
    """Shares of held-out labels (%) that neighbours and a linear model tell; means over draws."""
    shares = []
    for draw in range(DRAWS):
        y = partly_labelled(data, labelled_rows(data, n_labels, draw))
        agreement = neighbor_agreement(data.X, y, random_state=data.seed)
        shares.append((agreement.neighbors, agreement.linear))
    neighbors, linear = 100.0 * np.mean(shares, axis=0)
    return {"set": data.name, "n_labels": n_labels, "neighbors": neighbors, "linear": linear}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--results", type=Path, required=True, help="folder with what real_data.py has written")
    add("--data-dir", type=Path, help="as of real_data.py")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)
    options = parser.parse_args(argv)
    calls: list[Call] = []
    with command.refusing(parser):
        accuracies = draws_of(Library(options.results).results(f"real-data-{SPLIT}.json"))
        gains = accuracies["coherence"] - accuracies["scratch"]
        gain = gains.groupby(["set", "n_labels"]).mean().rename("gain")
        for name in SPLITS[SPLIT]:
            table = load(name, options.data_dir, partial(command.say, options))
            data = prepared(table, options.seed)
            sizes = [n for of, n in gain.index if of == name and n in N_LABELS]
            calls += [((n,), (data,)) for n in sizes]
    with command.resumable(parser):
        shares = pd.DataFrame(list(local_workers(options.jobs).results(share_right, calls)))
    records = shares.join(gain, on=["set", "n_labels"]).sort_values(["n_labels", "set"])
    settings = {"split": SPLIT, "draws": DRAWS, "n_labels": N_LABELS}
    results = {"settings": settings, "records": records.round(2).to_dict("records")}
    publish(parser, options, results, ["agreement"])


if __name__ == "__main__":
    main()
