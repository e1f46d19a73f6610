"""The tables as a picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from protocol.store import write_atomically
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
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"{path.name} not drawn: matplotlib is missing, pip install matplotlib"
    table: dict[str, dict[int, list[float]]] = {}
    for score in scores:
        of_method = table.setdefault(score["method"], {})
        of_method.setdefault(score["n_labels"], []).append(100.0 * score["accuracy"])
    sizes = sorted(next(iter(table.values())))
    if any(len(values) < 2 for cells in table.values() for values in cells.values()):
        return f"{path.name} not drawn: an interval takes two tasks or more"
    # A figure of its own, so that no window system is asked for.
    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    curves = {method: [cells[n] for n in sizes] for method, cells in table.items()}
    TaskAccuracyDisplay.from_scores(sizes, curves, ax=axes)
    axes.set(title=title, xlabel="N (10 N training labels)", ylabel="Test accuracy (%)")
    write_atomically(path, lambda part: figure.savefig(part, dpi=150))
    return f"{path} written"
