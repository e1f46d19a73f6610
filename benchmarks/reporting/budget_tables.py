"""What accuracy a second of pre-training buys, and the cheapest setting that is good enough.

A point is a setting after so many passes. Its difference from the reference, the paper's setting
after all passes, is taken on each (run, task): accuracies are averaged over N there first, so
that a task counts once in the 95% t interval. Seconds and losses are means over the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from protocol.budget_settings import REFERENCE, curve_name
from reporting.table import Table
from reporting.task_tables import Gain, gain_text, paired_gain, unpack_scores

__all__ = [
    "MARGIN",
    "Choice",
    "Point",
    "as_records",
    "budget_points",
    "budget_table",
    "choose",
    "full_table",
    "points_of_results",
    "reference_point",
    "statement",
]

MARGIN = 0.3

# Sums of accuracies are not exact: a difference of -0.3 points is within 0.3 points.
ROUNDING = 1e-9

Scores = dict[tuple[int, int], dict[int, float]]


@dataclass(frozen=True)
class Point:
    """A setting after so many passes; accuracies in percent, differences in points."""

    setting: str
    passes: float
    steps: int
    seconds: float
    loss: float
    degenerate_softmax: float
    accuracy: dict[int, float]
    difference: Gain | None


@dataclass(frozen=True)
class Choice:
    """Cheapest points within the margin of the reference, by two readings of "within".

    Parameters
    ----------
    reference : Point
        The paper's setting after all passes.
    by_mean : Point
        The mean difference is within the margin.
    by_interval : Point
        The whole 95% interval is: the noise of the tasks does not decide.
    """

    reference: Point
    by_mean: Point
    by_interval: Point


def _scores_of(records: Iterable[dict[str, Any]]) -> dict[str, Scores]:
    """Method -> (run, task) -> N -> accuracy in percent."""
    table: dict[str, Scores] = {}
    for record in records:
        of_method = table.setdefault(record["method"], {})
        of_task = of_method.setdefault((record["run"], record["task"]), {})
        of_task[record["n_labels"]] = 100.0 * record["accuracy"]
    return table


def _difference(scores: Scores, base: Scores | None) -> Gain | None:
    """The paired difference, or None where the two did not have the same tasks and N."""
    if base is None or scores.keys() != base.keys():
        return None
    if any(scores[pair].keys() != base[pair].keys() for pair in scores):
        return None
    return paired_gain([float(np.mean([scores[p][n] - base[p][n] for n in base[p]])) for p in base])


def _mean(records: Sequence[dict[str, Any]], name: str) -> float:
    return float(np.mean([record[name] for record in records]))


def budget_points(
    checkpoints: Iterable[dict[str, Any]], scores: Iterable[dict[str, Any]]
) -> list[Point]:
    """One point for each setting and number of passes, in the order in which they come.

    Parameters
    ----------
    checkpoints : iterable of dict
        Records with setting, passes, run, steps, seconds, loss and degenerate_softmax.
    scores : iterable of dict
        Records with method (of :func:`~protocol.budget_settings.curve_name`), run, task, n_labels
        and accuracy (0 to 1).
    """
    grouped: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for record in checkpoints:
        grouped.setdefault((record["setting"], record["passes"]), []).append(record)
    table = _scores_of(scores)
    all_passes = max((p for s, p in grouped if s == REFERENCE), default=0.0)
    base = table.get(curve_name(REFERENCE, all_passes))
    points = []
    for (setting, passes), records in grouped.items():
        own = table[curve_name(setting, passes)]
        sizes = list(dict.fromkeys(n for of_task in own.values() for n in of_task))
        point = Point(
            setting,
            passes,
            steps=records[0]["steps"],
            seconds=_mean(records, "seconds"),
            loss=_mean(records, "loss"),
            degenerate_softmax=_mean(records, "degenerate_softmax"),
            accuracy={n: float(np.mean([t[n] for t in own.values()])) for n in sizes},
            difference=_difference(own, base),
        )
        points.append(point)
    return points


def reference_point(points: Sequence[Point]) -> Point | None:
    """The paper's setting after all passes; None if it was not measured."""
    candidates = [point for point in points if point.setting == REFERENCE]
    return max(candidates, key=lambda point: point.passes, default=None)


def _cheapest(points: Iterable[Point]) -> Point:
    return min(points, key=lambda point: (point.seconds, point.steps))


def _mean_within(point: Point, margin: float) -> bool:
    return point.difference is not None and point.difference.mean >= -margin - ROUNDING


def _interval_within(point: Point, margin: float) -> bool:
    low = None if point.difference is None else point.difference.low
    return low is not None and low >= -margin - ROUNDING


def choose(points: Sequence[Point], *, margin: float = MARGIN) -> Choice | None:
    """The cheapest points within the margin; None where the reference is not among the points.

    Better than the reference is within the margin too. The reference itself always is.
    """
    reference = reference_point(points)
    if reference is None:
        return None
    return Choice(
        reference,
        _cheapest([reference, *(p for p in points if _mean_within(p, margin))]),
        _cheapest([reference, *(p for p in points if _interval_within(p, margin))]),
    )


def _name(point: Point) -> str:
    return f"{point.setting}, {point.passes:g} {'pass' if point.passes == 1 else 'passes'}"


def _sentence(point: Point, reference: Point) -> str:
    if point == reference:
        return "none but itself"
    assert point.difference is not None  # it was chosen by it
    share = point.seconds / reference.seconds
    return (
        f"{_name(point)}: {point.seconds:.3g} s, {100 * share:.3g} % of the full cost, "
        f"{gain_text(point.difference)} points over {point.difference.n_pairs} (run, task) pairs"
    )


def statement(choice: Choice, *, margin: float = MARGIN) -> str:
    """Which is the cheapest, and how sure that is."""
    reference = choice.reference
    return "\n".join(
        [
            f"Full setting: {_name(reference)}, {reference.seconds:.3g} s.",
            f"Cheapest whose mean accuracy is within {margin:g} points of it: "
            f"{_sentence(choice.by_mean, reference)}.",
            f"Cheapest whose whole 95% interval is within {margin:g} points: "
            f"{_sentence(choice.by_interval, reference)}.",
            "Pairs of one run share a theta0. The cheapest of many is also the luckiest of "
            "them: its mean difference is a little flattered, its interval a little narrow.",
        ]
    )


# Tables


def _row(point: Point, sizes: Sequence[int], reference: Point | None) -> list[str]:
    cost = "-" if reference is None else f"{100 * point.seconds / reference.seconds:.1f} %"
    return [
        point.setting,
        f"{point.passes:g}",
        f"{point.seconds:.3g}",
        cost,
        f"{point.loss:.4f}",
        *(f"{point.accuracy[n]:.2f}" if n in point.accuracy else "-" for n in sizes),
        "reference" if point == reference else gain_text(point.difference),
    ]


def _table(title: str, rows: Sequence[Point], points: Sequence[Point]) -> Table:
    sizes = list(dict.fromkeys(n for point in points for n in point.accuracy))
    head = ["setting", "passes", "seconds", "cost", "loss"]
    head += [*(f"N = {n}" for n in sizes), "difference"]
    reference = reference_point(points)
    return Table(title, head, [_row(point, sizes, reference) for point in rows])


def full_table(points: Sequence[Point]) -> Table:
    """Every point."""
    title = (
        "Seconds of pre-training, cost against the full setting, loss (the paper's, at theta0), "
        "test accuracy (%), difference from the full setting (points) and its 95% interval"
    )
    return _table(title, points, points)


def budget_table(points: Sequence[Point]) -> Table:
    """The full setting, then each setting where it is first within the margin, cheapest first.

    A setting that never is stands there with its last point.
    """
    reference = reference_point(points)
    by_setting: dict[str, list[Point]] = {}
    for point in points:
        by_setting.setdefault(point.setting, []).append(point)
    rows = []
    for candidates in by_setting.values():
        within = [p for p in candidates if _mean_within(p, MARGIN)]
        rows.append(_cheapest(within) if within else max(candidates, key=lambda p: p.passes))
    rows.sort(key=lambda p: (not _mean_within(p, MARGIN), p.seconds))
    if reference is not None:
        rows = [reference, *(p for p in rows if p != reference)]
    title = (
        "The full setting, and the fewest passes with which each setting's mean accuracy is "
        f"within {MARGIN:g} points of it (all its passes where none are)"
    )
    return _table(title, rows, points)


def points_of_results(results: dict[str, Any]) -> list[Point]:
    """The points of a file that ``budget.py`` wrote."""
    return budget_points(results["checkpoints"], unpack_scores(results["scores"]))


def as_records(points: Iterable[Point]) -> list[dict[str, Any]]:
    """The points as JSON can hold them."""
    return [asdict(point) for point in points]
