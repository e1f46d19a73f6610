"""Accuracy and loss against seconds of pre-training, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reporting.budget_tables import MARGIN, Point, reference_point
from reporting.picture import draw_picture

__all__ = ["draw_budget"]

MARKERS = "osD^v<>Pp*Xh"


def draw_budget(
    points: Sequence[Point], scratch: Mapping[int, float], path: Path, *, title: str
) -> str:
    """Draw one panel for each N and one for the loss, and say what was done.

    Parameters
    ----------
    points : sequence of Point
        From :func:`reporting.budget_tables.budget_points`.
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
        curves.setdefault(point.setting, []).append(point)
    sizes = list(points[0].accuracy)

    def paint(figure: Any) -> None:
        *panels, loss_panel = figure.subplots(1, len(sizes) + 1)
        for axes, n in zip(panels, sizes, strict=True):
            _draw_curves(axes, curves, lambda point, n=n: point.accuracy[n])
            _draw_levels(axes, n, reference_point(points), scratch)
            axes.set(title=f"N = {n}", ylabel="Test accuracy (%)")
        _draw_curves(loss_panel, curves, lambda point: point.loss)
        loss_panel.set(title="Loss at theta0", ylabel="The paper's loss, on the same rows for all")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
        figure.suptitle(title)

    return draw_picture(path, (4.5 * (len(sizes) + 1), 4.8), paint)


def _draw_curves(axes: Any, curves: Mapping[str, Sequence[Point]], value: Any) -> None:
    for number, (setting, points) in enumerate(curves.items()):
        axes.plot(
            [point.seconds for point in points],
            [value(point) for point in points],
            marker=MARKERS[number % len(MARKERS)],
            # Beyond ten settings the colours come again, and the markers tell them apart.
            color=f"C{number % 10}",
            markersize=4,
            label=setting,
        )
    axes.set(xscale="log", xlabel="Seconds of pre-training")


def _draw_levels(axes: Any, n: int, reference: Point | None, scratch: Mapping[int, float]) -> None:
    if reference is not None:
        full = reference.accuracy[n]
        label = f"full setting, less {MARGIN:g} points"
        axes.axhspan(full - MARGIN, full, color="0.85", zorder=0, label=label)
    if n in scratch:
        axes.axhline(scratch[n], color="0.4", linestyle=":", label="from scratch")
