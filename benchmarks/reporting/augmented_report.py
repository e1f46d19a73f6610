"""What small changes of the images along the walks of coherence add, on the tasks both have."""

from __future__ import annotations

from typing import Any

from reporting.against_table import THETA0_OF
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference

__all__ = ["augmentation_differences"]

Scores = list[dict[str, Any]]


def augmentation_differences(augmented: Scores, plain: Scores) -> Table:
    """Each row with augmentation minus itself without, task by task.

    Parameters
    ----------
    augmented, plain : list of dict
        Scores of a file with ``--augmentation``, and of one without. The same run, task and N
        have the same labelled images in both.
    """
    own, other = accuracies_of(augmented), accuracies_of(plain)
    sizes = sorted({n for _, n in own})
    learned = {*THETA0_OF, *THETA0_OF.values()}
    rows = []
    for method in dict.fromkeys(name for name, _ in own if name in learned):
        gains = [
            paired_difference(own.get((method, n), {}), other.get((method, n), {})) for n in sizes
        ]
        if any(gain is not None for gain in gains):
            rows.append([method, *map(gain_text, gains)])
    title = (
        "With augmentation minus without, on the same tasks and labelled images (points): mean "
        "and its 95% interval"
    )
    return Table(title, ["method", *(f"N = {n}" for n in sizes)], rows)
