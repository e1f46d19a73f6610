"""What a theta0 is worth by each reading of L_uni's kernels, and what the paper's is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from protocol.kernels import KERNELS
from reporting.degeneracy_tables import pretraining_words, setting_of
from reporting.diagnostics_tables import ratio_cells, ratio_heads
from reporting.paper import FINAL_LOSS, N_LABELS, paper_difference
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference

__all__ = ["kernels_table", "shares_table"]

OURS, SCRATCH = "xavier/fcn/ours", "xavier/fcn/scratch"


def kernels_table(scores: Mapping[str, list[dict[str, Any]]], how: str) -> Table:
    """Points over the network from scratch on the runs of both readings, and between the two.

    Parameters
    ----------
    scores : dict
        Scores by reading, a key of ``protocol.kernels.KERNELS``. The same run, task and N have the
        same labelled images in both.
    how : str
        How theta0 was learned.
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

    paper = (paper_difference(OURS, SCRATCH, n) for n in N_LABELS)
    rows = [["the paper's mean of four runs", *paper]]
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
        f"{len(runs)} run{'' if len(runs) == 1 else 's'}), theta0 after {how}: mean and its 95% "
        "interval"
    )
    return Table(title, ["", *(f"N = {n}" for n in N_LABELS)], rows)


def shares_table(results: dict[str, Any]) -> Table:
    """What becomes of theta0 as L_uni weighs less beside the other two terms.

    Parameters
    ----------
    results : dict
        What ``degeneracies.py`` writes for multiples of the paper's (lambda, xi): as many times
        both is an L_uni of as small a share, since Adam does not mind the scale of a loss.
    """
    settings = results["settings"]
    rows = []
    for record in results["records"]:
        setting = setting_of(record)
        times = setting and tuple(
            own / paper for own, paper in zip(setting, FINAL_LOSS, strict=True)
        )
        if not times or not math.isclose(*times):
            continue
        share = "1" if times[1] == 1.0 else f"1/{times[1]:g}"
        rows.append([share, *ratio_cells(record)])
    title = (
        f"Degenerate softmax (% of {settings['networks_a_ratio']} perturbed networks) and dead "
        f"neurons (%) by the weight of L_uni: mean ± std over {settings['n_batches']} "
        f"mini-batches; {pretraining_words(settings)}"
    )
    return Table(title, ["weight of L_uni", *ratio_heads(settings)], rows)
