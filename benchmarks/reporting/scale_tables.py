"""The table of ``scale_and_weight.py``: degenerate softmax and dead neurons by s and lambda.

DS is the mean over mini-batches. IOD is the mean over mini-batches of the hidden layer where that
is largest. Both are then averaged over the runs, as the paper has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reporting.degeneracy_tables import NOT_RUN, pretraining_words
from reporting.paper import SCALE_AND_WEIGHT, compares_with_paper
from reporting.table import Table, as_text, mean_and_std

__all__ = ["records_by_cell", "scale_and_weight_table", "scale_text"]


def records_by_cell(
    results: dict[str, Any],
) -> dict[tuple[float, float], list[dict[str, Any]]]:
    """The runs of each (s^2, lambda) of the grid; none where it was not run yet."""
    settings = results["settings"]
    grid: dict[tuple[float, float], list[dict[str, Any]]] = {
        (square, weight): []
        for square in settings["squared_scales"]
        for weight in settings["weights"]
    }
    for record in results["records"]:
        grid[record["squared_scale"], record["degeneracy_weight"]].append(record)
    return grid


def _over_runs(values: list[float]) -> str:
    if not values:
        return NOT_RUN
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return mean_and_std(float(np.mean(values)), std)


def scale_and_weight_table(results: dict[str, Any]) -> Table:
    """One row for each cell of the grid, those that were not run yet among them.

    Parameters
    ----------
    results : dict
        What ``scale_and_weight.py`` writes.
    """
    settings, paper = results["settings"], compares_with_paper(results)
    rows = []
    for cell, records in records_by_cell(results).items():
        degenerate = [record["degenerate_softmax_percent"]["mean"] for record in records]
        dead = [max(layer["mean"] for layer in r["dead_neurons_percent"]) for r in records]
        texts = [_over_runs(degenerate), _over_runs(dead)]
        if paper:
            figures = SCALE_AND_WEIGHT.get(cell)
            beside = ["-", "-"] if figures is None else [mean_and_std(*f) for f in figures]
            texts = [text for pair in zip(texts, beside, strict=True) for text in pair]
        rows.append([*(f"{value:g}" for value in cell), str(len(records)), *texts])
    title = (
        f"Degenerate softmax (DS, % of {settings['networks_a_ratio']} perturbed networks) and "
        f"fully dead neurons of the worst hidden layer (IOD, %), {settings['n_batches']} "
        f"mini-batches of {settings['batch_size']}: mean, ± std over runs where there are several; "
        f"{pretraining_words(settings)}"
    )
    if paper:
        title += " (the paper: 5 passes, K = 256, four runs)"
    head = ["DS", "DS, the paper", "IOD", "IOD, the paper"] if paper else ["DS", "IOD"]
    return Table(title, ["s^2", "lambda", "runs", *head], rows)


def scale_text(results: dict[str, Any]) -> str:
    """All that is printed."""
    return as_text(scale_and_weight_table(results))
