"""Accuracy against pre-training time with and without coherence, and one change at a time.

Each difference is taken on the same (run, task) and labelled images: from scratch in the one
table, from the default in the other; mean and 95% t interval over all pairs. Seconds are those of
the fastest run: all runs do the same work, and whatever else the machine does only adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from protocol.coherence_bench import METHOD
from protocol.coherence_settings import DEFAULT, Setting
from reporting.table import Table
from reporting.task_tables import Gain, accuracies_of, gain_text, paired_gain, unpack_scores

__all__ = [
    "COHERENCE_TABLES",
    "Point",
    "as_records",
    "coherence_points",
    "points_of_results",
    "scratch_accuracy",
    "setting_of_record",
]


@dataclass(frozen=True)
class Point:
    """A setting; by N its accuracy (%) and its differences from its base (points).

    The base is scratch where time is asked for, and the default in an ablation; a difference is
    None where that was not measured on the same tasks, and for the default itself.
    """

    section: str
    setting: str
    passes: int
    runs: int
    seconds: float
    accuracy: dict[int, float]
    difference: dict[int, Gain | None]


def coherence_points(
    records: Iterable[dict[str, Any]], scores: Iterable[dict[str, Any]]
) -> list[Point]:
    """The points, in the order of the records.

    Parameters
    ----------
    records : iterable of dict
        A theta0 each: section, name, passes, changes, run, seconds.
    scores : iterable of dict
        Records with method, run, task, n_labels and accuracy (0 to 1).
    """
    table = accuracies_of(scores)
    sizes = list(dict.fromkeys(n for _, n in table))
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        grouped.setdefault(setting_of_record(record).method, []).append(record)
    points = []
    for method, own in grouped.items():
        setting = setting_of_record(own[0])
        base = METHOD.scratch
        if setting.section == "ablation":
            base = Setting("ablation", DEFAULT, setting.passes, {}).method
        points.append(
            Point(
                setting.section,
                setting.name,
                setting.passes,
                runs=len({record["run"] for record in own}),
                seconds=float(min(record["seconds"] for record in own)),
                accuracy={n: float(np.mean(list(table[method, n].values()))) for n in sizes},
                difference={n: _difference(table, method, base, n) for n in sizes},
            )
        )
    return points


def setting_of_record(record: dict[str, Any]) -> Setting:
    """What a theta0 was learned with."""
    return Setting(record["section"], record["name"], record["passes"], record["changes"])


def _difference(
    table: dict[tuple[str, int], dict[tuple[int, int], float]], method: str, base: str, n: int
) -> Gain | None:
    own, other = table[method, n], table.get((base, n), {})
    if method == base or not own.keys() <= other.keys():
        return None
    return paired_gain([own[pair] - other[pair] for pair in own])


def scratch_accuracy(scores: Iterable[dict[str, Any]]) -> dict[int, float]:
    """Mean accuracy (%) of the network from scratch, by N."""
    table = accuracies_of(scores)
    return {
        n: float(np.mean(list(cell.values())))
        for (name, n), cell in table.items()
        if name == METHOD.scratch
    }


def _cells(point: Point) -> list[str]:
    """Accuracy and difference at each N."""
    default = point.section == "ablation" and point.setting == DEFAULT
    cells = []
    for n, accuracy in point.accuracy.items():
        difference = "reference" if default else gain_text(point.difference[n])
        cells += [f"{accuracy:.2f}", difference]
    return cells


def _head(points: Sequence[Point], what: str) -> list[str]:
    return [text for n in points[0].accuracy for text in (f"N = {n}", what)] if points else []


def _over(points: Sequence[Point]) -> str:
    """Over how many runs the points are."""
    counts = sorted({point.runs for point in points}) or [0]
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} run{'' if counts == [1] else 's'}"


def time_table(points: Sequence[Point]) -> Table:
    """Accuracy against seconds."""
    own = [point for point in points if point.section == "time"]
    rows = [[p.setting, f"{p.passes}", f"{p.seconds:.3g}", *_cells(p)] for p in own]
    title = (
        "Test accuracy (%) after so many seconds of pre-training, and the difference from scratch "
        f"on the same tasks (points) with its 95% interval; {_over(own)}"
    )
    return Table(title, ["objective", "passes", "seconds", *_head(own, "over scratch")], rows)


def ablation_table(points: Sequence[Point]) -> Table:
    """One change at a time."""
    own = [point for point in points if point.section == "ablation"]
    passes = "/".join(str(n) for n in dict.fromkeys(p.passes for p in own))
    title = (
        f"One change at a time, {passes} passes: test accuracy (%), and the difference from the "
        f"default on the same tasks (points) with its 95% interval; {_over(own)}"
    )
    # No seconds: every row takes as many steps, and they say more of the machine than of the row.
    head = ["change", *_head(own, "difference")]
    return Table(title, head, [[p.setting, *_cells(p)] for p in own])


COHERENCE_TABLES: dict[str, Callable[[Sequence[Point]], Table]] = {
    "coherence_time": time_table,
    "coherence_ablation": ablation_table,
}
"""Tables by kind."""


def points_of_results(results: dict[str, Any]) -> list[Point]:
    """The points of a file that ``coherence.py`` wrote."""
    return coherence_points(results["theta0"], unpack_scores(results["scores"]))


def as_records(points: Iterable[Point]) -> list[dict[str, Any]]:
    """The points as JSON can hold them."""
    return [asdict(point) for point in points]
