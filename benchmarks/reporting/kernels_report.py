"""What a theta0 is worth by each reading of L_uni's kernels, and what the paper's is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.kernels import KERNELS
from reporting.paper import ACCURACY, N_LABELS
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference

__all__ = ["kernels_table"]

OURS, SCRATCH = "xavier/fcn/ours", "xavier/fcn/scratch"


def _paper(n_labels: int) -> str:
    place = N_LABELS.index(n_labels)
    return f"{ACCURACY[OURS][place][0] - ACCURACY[SCRATCH][place][0]:+.2f}"


def kernels_table(scores: Mapping[str, list[dict[str, Any]]]) -> Table:
    """Points over the network from scratch on the runs of both readings, and between the two.

    Parameters
    ----------
    scores : dict
        Scores by reading, a key of ``protocol.kernels.KERNELS``. The same run, task and N have the
        same labelled images in both.
    """
    by_reading = {kernels: accuracies_of(scores[kernels]) for kernels in KERNELS}
    runs = set.intersection(
        *(
            {run for (name, _), cell in found.items() if name == OURS for run, _ in cell}
            for found in by_reading.values()
        )
    )

    def cell(kernels: str, method: str, n_labels: int) -> dict[tuple[int, int], float]:
        found = by_reading[kernels].get((method, n_labels), {})
        return {pair: value for pair, value in found.items() if pair[0] in runs}

    rows = [["the paper's mean of four runs", *map(_paper, N_LABELS)]]
    for kernels in KERNELS:
        gains = (
            paired_difference(cell(kernels, OURS, n), cell(kernels, SCRATCH, n)) for n in N_LABELS
        )
        rows.append([f"{kernels} of the kernels", *map(gain_text, gains)])
    between = (
        paired_difference(*(cell(kernels, OURS, n) for kernels in ("mean", "sum")))
        for n in N_LABELS
    )
    rows.append(["mean minus sum", *map(gain_text, between)])
    title = (
        f"{OURS} over {SCRATCH} on the same tasks and labelled images (points; "
        f"{len(runs)} run{'' if len(runs) == 1 else 's'}): mean and its 95% interval"
    )
    return Table(title, ["", *(f"N = {n}" for n in N_LABELS)], rows)
