"""L_uni along the steps, a panel for each s: the appendix's "uniform_loss"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reporting.degeneracy_tables import NOT_RUN
from reporting.picture import draw_picture, plain_log_ticks
from reporting.scale_tables import records_by_cell

__all__ = ["draw_uniformity"]


def draw_uniformity(results: dict[str, Any], path: Path) -> str:
    """Draw a curve for each lambda in the panel of its s, and say what was done.

    Parameters
    ----------
    results : dict
        What ``scale_and_weight.py`` writes.
    path : Path
        The PNG.
    """
    if not results["records"]:
        return f"{path.name} not drawn: nothing was run yet"
    settings, grid = results["settings"], records_by_cell(results)

    def paint(figure: Any) -> None:
        scales = settings["squared_scales"]
        panels = figure.subplots(1, len(scales), squeeze=False, sharex=True, sharey=True)[0]
        lines: dict[str, Any] = {}
        for axes, square in zip(panels, scales, strict=True):
            for number, weight in enumerate(settings["weights"]):
                if grid[square, weight]:
                    line = _draw_curve(axes, grid[square, weight], f"C{number}")
                    lines[f"lambda = {weight:g}"] = line
            if not axes.lines:
                axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", color="0.4")
            axes.axhline(0.0, color="0.4", linestyle=":", linewidth=1.0)
            axes.set(title=rf"$s = \sqrt{{{square:g}}}$", xscale="log", xlabel="Step")
            plain_log_ticks(axes.xaxis)
        panels[0].set_ylabel("L_uni, mean of a window")
        names = [f"lambda = {weight:g}" for weight in settings["weights"]]
        drawn = [name for name in names if name in lines]
        figure.legend(
            [lines[name] for name in drawn],
            drawn,
            loc="outside lower center",
            ncols=len(drawn),
        )
        figure.suptitle(
            f"{results['dataset']['name']}: L_uni while theta0 is learned with xi = 1, "
            f"K = {settings['n_perturbations']}, {settings.get('kernels', 'sum')} of its kernels"
        )

    return draw_picture(path, (3.5 * len(settings["squared_scales"]), 4.0), paint)


def _draw_curve(axes: Any, records: list[dict[str, Any]], color: str) -> Any:
    """The mean over the runs, and a band of their std where there are several."""
    # A run whose loss was not finite ends early.
    n = min(len(record["steps"]) for record in records)
    steps = np.array(records[0]["steps"][:n])
    values = np.array([record["uniformity"][:n] for record in records])
    mean = values.mean(axis=0)
    (line,) = axes.plot(steps, mean, color=color)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        axes.fill_between(steps, mean - std, mean + std, color=color, alpha=0.25, linewidth=0)
    return line
