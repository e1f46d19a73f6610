"""The tables as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reporting.picture import draw_picture
from reporting.task_tables import paired_gain
from sklearn_mmdinit.display import TaskAccuracyDisplay

__all__ = ["draw_accuracy"]

# More of them on the same axes hide each other, and colours repeat.
MOST_CURVES = 9

# A method without a network has no epoch to choose, and trains on all of them.
LABELS_USED = "N (12 N labels; networks validate on 2 N)"


def draw_accuracy(scores: Iterable[dict[str, Any]], path: Path, *, title: str) -> str:
    """Draw mean accuracy by N with its interval over all (run, task) pairs, and say what was done.

    Parameters
    ----------
    scores : iterable of dict
        Records with method, n_labels and accuracy (0 to 1).
    path : Path
        The PNG.
    title : str
        Above the axes.

    Returns
    -------
    str
        One line: that it was written, or why not. A missing picture must not cost the figures.
    """
    table: dict[str, dict[int, list[float]]] = {}
    for score in scores:
        of_method = table.setdefault(score["method"], {})
        of_method.setdefault(score["n_labels"], []).append(100.0 * score["accuracy"])
    sizes = sorted(set.intersection(*(set(cells) for cells in table.values()))) if table else []
    if not sizes:
        return f"{path.name} not drawn: there is no N that every method was measured at"
    if any(len(values) < 2 for cells in table.values() for values in cells.values()):
        return f"{path.name} not drawn: an interval takes two tasks or more"
    curves = {method: [cells[n] for n in sizes] for method, cells in table.items()}
    if len(sizes) == 1:
        points = {name: own for name, (own,) in curves.items()}
        return _draw_points(points, sizes[0], path, title=title)
    panels = _panels(curves)

    def paint(figure: Any) -> None:
        figure.suptitle(title)
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, own in zip(row, panels, strict=True):
            TaskAccuracyDisplay.from_scores(sizes, {name: curves[name] for name in own}, ax=axes)
            axes.set(xlabel=LABELS_USED, ylabel="Test accuracy (%)")
            axes.legend(loc="lower right", fontsize="small")
            axes.label_outer()

    return draw_picture(path, (max(7.0, 4.5 * len(panels)), 5.0), paint)


def _draw_points(
    accuracies: dict[str, list[float]], n_labels: int, path: Path, *, title: str
) -> str:
    """One N has no curves: a line for each method, the best one above."""
    # Of accuracies, and not of differences; the mean and its interval are made alike.
    found = {name: paired_gain(own) for name, own in accuracies.items()}
    names = sorted(found, key=lambda name: found[name].mean)
    means = [found[name].mean for name in names]
    ends = [found[name].high for name in names]
    halves = [high - mean for high, mean in zip(ends, means, strict=True) if high is not None]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.errorbar(means, range(len(names)), xerr=halves, fmt="o", capsize=4)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel=f"Test accuracy (%), N = {n_labels}", title=title)
        axes.grid(axis="x", alpha=0.3)

    return draw_picture(path, (8.0, 1.5 + 0.35 * len(names)), paint)


def _panels(names: Iterable[str]) -> list[list[str]]:
    """Names that share axes: all of a few; else those that begin alike, and what is left alone."""
    names = list(names)
    if len(names) <= MOST_CURVES:
        return [names]
    groups: dict[str, list[str]] = {}
    for name in names:
        # Rows on features are of one kind, whichever the classifier.
        groups.setdefault(name.partition("/")[0].partition("+")[0], []).append(name)
    first, *others = groups.values()
    alone = [name for group in others if len(group) == 1 for name in group]
    return [[*first, *alone], *(group for group in others if len(group) > 1)]
