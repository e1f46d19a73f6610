"""Pictures of what the commands measured, each drawn in one step and without a window system.

A function takes what its command writes and the path of the PNG, and says in a line that it was
written, or why not: a missing picture must not cost the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol.store import write_atomically
from reporting.results import Results
from reporting.task_tables import SCRATCH, wide_of
from reporting.time_tables import coherence_points, sizes_of
from sklearn_mmdinit.display import TaskAccuracyDisplay

# More curves on the same axes hide each other, and colours repeat.
MOST_CURVES = 9
MARKERS = "osD"


def _draw(path: Path, size: tuple[float, float], paint: Callable[[Any], None]) -> str:
    """Let ``paint`` fill a figure of so many inches, and write it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return f"{path.name} not drawn: matplotlib is missing, pip install matplotlib"
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure)
    write_atomically(path, lambda part: figure.savefig(part, dpi=150))
    return f"{path} written"


def _plain_log_ticks(axis: Any) -> None:
    """Name 1, 2, 5, 10, 20 and so on along a logarithmic axis that spans a few powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    # Powers of ten alone say little there, and names of all others run into each other.
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


# Tasks


def draw_accuracy(results: Results, path: Path) -> str:
    """Mean accuracy by N with its interval over all (run, task) pairs, a curve a method."""
    wide = wide_of(results)
    counts = wide.groupby("n_labels").count()
    common = counts.index[(counts > 0).all(axis=1)]
    if len(common) < 2:
        return f"{path.name} not drawn: there are no two N that every method was measured at"
    if (counts.to_numpy() == 1).any():
        return f"{path.name} not drawn: an interval takes two tasks or more"
    panels = _panels(list(wide))

    def paint(figure: Any) -> None:
        figure.suptitle(f"{results['dataset']['name']}, 95% intervals over runs and tasks")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, names in zip(row, panels, strict=True):
            curves = {name: [wide.loc[n, name].dropna().tolist() for n in common] for name in names}
            TaskAccuracyDisplay.from_scores(common.tolist(), curves, ax=axes)
            # A method without a network has no epoch to choose, and trains on all of them.
            label = "N (12 N labels; networks validate on 2 N)"
            axes.set(xlabel=label, ylabel="Test accuracy (%)")
            axes.legend(loc="lower right", fontsize="small")
            axes.label_outer()

    return _draw(path, (max(7.0, 4.5 * len(panels)), 5.0), paint)


def _panels(names: list[str]) -> list[list[str]]:
    """Names that share axes: all of a few; else rivals, He's networks and the rest."""
    if len(names) <= MOST_CURVES:
        return [names]
    kinds = {
        name: kind if (kind := name.split("/")[0]) in ("rival", "he") else "" for name in names
    }
    panels = [[name for name in names if kinds[name] == kind] for kind in ("", "he", "rival")]
    return [panel for panel in panels if panel]


# Against time


def draw_coherence(results: Results, path: Path) -> str:
    """A panel for each N, a curve an objective of ``coherence.py``, against seconds."""
    points = coherence_points(results)
    points = points[points["section"] == "time"]
    if points.empty:
        return f"{path.name} not drawn: nothing was measured against time"
    sizes = sizes_of(points)
    scratch = wide_of(results).filter(items=[SCRATCH]).groupby("n_labels").mean()

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(sizes), squeeze=False)[0]
        for axes, n in zip(panels, sizes, strict=True):
            curves = points.groupby("name", sort=False)
            for marker, (name, own) in zip(MARKERS, curves, strict=False):
                axes.plot(own["seconds"], own[n], marker=marker, markersize=4, label=name)
            axes.set(xscale="log", xlabel="Seconds of pre-training")
            _plain_log_ticks(axes.xaxis)
            axes.set(title=f"N = {n}", ylabel="Test accuracy (%)")
            for mean in scratch.loc[n]:
                axes.axhline(mean, color="0.4", linestyle=":", label="from scratch")
        # One for all panels, where it hides no curve.
        own = panels[0].get_legend_handles_labels()
        figure.legend(*own, loc="outside lower center", ncols=len(own[1]))
        tasks = f"means over {results['plan']['tasks']} binary tasks a run"
        figure.suptitle(f"{results['dataset']['name']}: what pre-training buys, {tasks}")

    return _draw(path, (4.8 * len(sizes), 4.8), paint)
