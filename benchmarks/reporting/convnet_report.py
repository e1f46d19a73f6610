"""A convolutional network beside the perceptron, on the tasks and labelled images they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from protocol.convnet_methods import CONVNET_FEATURES, CONVNET_METHODS, CONVNET_NAMES
from protocol.methods import FEATURES, FEATURES_THETA0
from protocol.rivals import RIVALS
from protocol.scratch import SCRATCH
from reporting.against_table import Difference, against
from reporting.table import Table
from reporting.task_tables import (
    accuracies_of,
    build_table,
    gain_text,
    paired_difference,
    summarize,
)

__all__ = ["convnet_differences", "convnet_table", "on_shared_tasks", "perceptron_differences"]

Scores = list[dict[str, Any]]

# Row of the ConvNet -> the perceptron's row that has all but the network in common with it.
PERCEPTRONS = {
    "convnet/ours+coherence": FEATURES_THETA0,
    CONVNET_FEATURES: FEATURES,
    "convnet/scratch": SCRATCH.name,
}


def on_shared_tasks(scores: Scores, others: Iterable[dict[str, Any]]) -> Scores:
    """The scores, and after them those of the perceptron and of rivals on the same tasks at an N.

    Parameters
    ----------
    scores : list of dict
        Of the file of the ConvNet.
    others : iterable of dict
        Of a file of the perceptron. The same run, task and N have the same labelled images there.
    """
    here = {(s["run"], s["task"], s["n_labels"]) for s in scores}
    measured = {s["method"] for s in scores}
    rows = {*PERCEPTRONS.values(), *RIVALS} - measured
    found = [s for s in others if s["method"] in rows]
    found = [s for s in found if (s["run"], s["task"], s["n_labels"]) in here]
    return scores + found


def convnet_table(scores: Scores) -> Table:
    """Accuracy of each row on the shared tasks: the ConvNet's, the perceptron's, then rivals."""
    order = (*CONVNET_NAMES, *PERCEPTRONS.values(), *RIVALS)
    table = build_table("accuracy", summarize(scores), paper=False)
    rows = sorted(table.rows, key=lambda row: order.index(row[0]))
    return replace(table, rows=rows)


def convnet_differences(scores: Scores) -> list[Difference]:
    """The ConvNet's rows against its scratch and against rivals, task by task."""
    own = {*CONVNET_METHODS, CONVNET_FEATURES}
    return [difference for difference in against(scores) if difference.method in own]


def perceptron_differences(scores: Scores) -> Table:
    """Each row of the ConvNet minus the perceptron's, on the tasks that both have."""
    cells = accuracies_of(scores)
    sizes = sorted({n for _, n in cells})
    rows = []
    for own, other in PERCEPTRONS.items():
        gains = [
            paired_difference(cells.get((own, n), {}), cells.get((other, n), {})) for n in sizes
        ]
        if any(gain is not None for gain in gains):
            rows.append([own, other, *map(gain_text, gains)])
    title = (
        "The convolutional network minus the perceptron on the same tasks and labelled images "
        "(points): mean and its 95% interval"
    )
    return Table(title, ["method", "against", *(f"N = {n}" for n in sizes)], rows)
