"""Accuracy against seconds of pre-training, by objective, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting.coherence_tables import Point, points_of_results, scratch_accuracy
from reporting.picture import draw_picture, plain_log_ticks
from reporting.task_tables import unpack_scores

__all__ = ["draw_coherence", "draw_results"]

MARKERS = "sD^ov"


def draw_coherence(
    points: Sequence[Point], scratch: Mapping[int, float], path: Path, *, title: str
) -> str:
    """Draw one panel for each N with a curve for each objective, and say what was done.

    Parameters
    ----------
    points : sequence of Point
        From :func:`reporting.coherence_tables.coherence_points`; those against time are drawn.
    scratch : mapping of int to float
        By N, test accuracy (%) of the same network from fresh weights.
    path : Path
        The PNG.
    title : str
        Above the panels.

    Returns
    -------
    str
        One line: that it was written, or why not. A missing picture must not cost the figures.
    """
    curves: dict[str, list[Point]] = {}
    for point in points:
        if point.section == "time":
            curves.setdefault(point.setting, []).append(point)
    if not curves:
        return f"{path.name} not drawn: nothing was measured against time"
    sizes = list(next(iter(curves.values()))[0].accuracy)

    def paint(figure: Any) -> None:
        _paint(figure, curves, scratch, sizes, title)

    return draw_picture(path, (5.0 * len(sizes), 4.5), paint)


def draw_results(results: dict[str, Any], path: Path) -> str:
    """:func:`draw_coherence` of a file that ``coherence.py`` wrote."""
    points = points_of_results(results)
    runs = {point.runs for point in points if point.section == "time"}
    tasks = " to ".join(str(results["plan"]["tasks"] * n) for n in sorted(runs))
    return draw_coherence(
        points,
        scratch_accuracy(unpack_scores(results["scores"])),
        path,
        title=f"{results['dataset']['name']}: what pre-training buys, means over {tasks} "
        "binary tasks",
    )


def _paint(
    figure: Any,
    curves: Mapping[str, Sequence[Point]],
    scratch: Mapping[int, float],
    sizes: Sequence[int],
    title: str,
) -> None:
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, n in zip(panels, sizes, strict=True):
        for number, (name, own) in enumerate(curves.items()):
            axes.plot(
                [point.seconds for point in own],
                [point.accuracy[n] for point in own],
                marker=MARKERS[number % len(MARKERS)],
                label=name,
            )
        if n in scratch:
            axes.axhline(scratch[n], color="0.4", linestyle=":", label="from scratch")
        axes.set(
            title=f"N = {n}",
            xscale="log",
            xlabel="Seconds of pre-training",
            ylabel="Test accuracy (%)",
        )
        plain_log_ticks(axes.xaxis)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    figure.suptitle(title)
