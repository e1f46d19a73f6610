"""The tables as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reporting.picture import draw_picture
from sklearn_mmdinit.display import TaskAccuracyDisplay

__all__ = ["draw_accuracy"]


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
    sizes = sorted(next(iter(table.values())))
    if any(len(values) < 2 for cells in table.values() for values in cells.values()):
        return f"{path.name} not drawn: an interval takes two tasks or more"
    curves = {method: [cells[n] for n in sizes] for method, cells in table.items()}

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        TaskAccuracyDisplay.from_scores(sizes, curves, ax=axes)
        axes.set(title=title, xlabel="N (10 N training labels)", ylabel="Test accuracy (%)")

    return draw_picture(path, (7.0, 5.0), paint)
