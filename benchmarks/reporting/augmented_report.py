"""What another way to learn with coherence adds, on the tasks that both have."""

from __future__ import annotations

from typing import Any

from reporting.against_table import THETA0_OF
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference

__all__ = ["way_differences"]

Scores = list[dict[str, Any]]


def way_differences(words: str, ours: Scores, beside: Scores) -> Table:
    """Each row of ours minus itself learned in another way, task by task.

    Parameters
    ----------
    words : str
        What is subtracted from what.
    ours, beside : list of dict
        Scores of a file with ``--augmentation`` or ``--rounds``, say, and of one without. The same
        run, task and N have the same labelled images in both.
    """
    own, other = accuracies_of(ours), accuracies_of(beside)
    sizes = sorted({n for _, n in own})
    learned = {*THETA0_OF, *THETA0_OF.values()}
    rows = []
    for method in dict.fromkeys(name for name, _ in own if name in learned):
        gains = [
            paired_difference(own.get((method, n), {}), other.get((method, n), {})) for n in sizes
        ]
        if any(gain is not None for gain in gains):
            rows.append([method, *map(gain_text, gains)])
    title = f"{words}, on the same tasks and labelled images (points): mean and its 95% interval"
    return Table(title, ["method", *(f"N = {n}" for n in sizes)], rows)
