"""What ``tune_scratch.py`` tried: accuracy of each setting, and its difference from the paper's.

A difference is taken on each (run, task), averaged over N there first, so that a task counts
once in the 95% t interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reporting.table import Table
from reporting.task_tables import Gain, accuracies_of, gain_text, paired_gain

__all__ = ["Tried", "as_records", "tried_of_records", "tried_settings", "tuning_table"]


@dataclass(frozen=True)
class Tried:
    """A setting; accuracies in percent by N, their mean, and the difference in points."""

    setting: str
    accuracy: dict[int, float]
    mean: float
    difference: Gain | None


def tried_settings(scores: Iterable[dict[str, Any]], *, reference: str) -> list[Tried]:
    """Every setting, the highest mean over N first.

    Parameters
    ----------
    scores : iterable of dict
        Records with method (the setting's name), run, task, n_labels and accuracy (0 to 1).
    reference : str
        The setting that differences are taken from; its own is None.
    """
    table = accuracies_of(scores)
    sizes = list(dict.fromkeys(n for _, n in table))
    settings = list(dict.fromkeys(name for name, _ in table))
    tried = []
    for name in settings:
        accuracy = {n: float(np.mean(list(table[name, n].values()))) for n in sizes}
        difference = None
        if name != reference and (reference, sizes[0]) in table:
            difference = paired_gain(
                [
                    float(np.mean([table[name, n][p] - table[reference, n][p] for n in sizes]))
                    for p in table[name, sizes[0]]
                ]
            )
        tried.append(Tried(name, accuracy, float(np.mean(list(accuracy.values()))), difference))
    return sorted(tried, key=lambda t: -t.mean)


def tuning_table(tried: Sequence[Tried], *, first: int | None = None) -> Table:
    """One row for each setting, or for the best ones and the reference.

    Parameters
    ----------
    tried : sequence of Tried
        From :func:`tried_settings`.
    first : int or None
        How many of the best; None: all.
    """
    sizes = list(tried[0].accuracy)
    shown = [t for place, t in enumerate(tried) if first is None or place < first]
    shown += [t for t in tried if t.difference is None and t not in shown]
    rows = [
        [
            t.setting,
            *(f"{t.accuracy[n]:.2f}" for n in sizes),
            f"{t.mean:.2f}",
            "reference" if t.difference is None else gain_text(t.difference),
        ]
        for t in shown
    ]
    what = f"the best {first} of {len(tried)} settings" if first else "every setting, best first"
    title = (
        f"Fine-tuning of the network from scratch, {what}: test accuracy (%), and the difference "
        "from the paper's own on the same tasks (points) with its 95% interval"
    )
    return Table(title, ["setting", *(f"N = {n}" for n in sizes), "mean", "difference"], rows)


def as_records(tried: Iterable[Tried]) -> list[dict[str, Any]]:
    """The settings as JSON can hold them."""
    return [asdict(t) for t in tried]


def tried_of_records(records: Iterable[dict[str, Any]]) -> list[Tried]:
    """The settings again, the inverse of :func:`as_records`."""
    return [
        Tried(
            record["setting"],
            {int(n): value for n, value in record["accuracy"].items()},
            record["mean"],
            None if record["difference"] is None else Gain(**record["difference"]),
        )
        for record in records
    ]
