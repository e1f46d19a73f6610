"""Pictures of what the commands measured, each drawn in one step and without a window system.

A function takes what its command writes and the path of the PNG, and says in a line that it was
written, or why not: a missing picture must not cost the figures.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from protocol.methods import SCRATCH
from protocol.store import write_atomically
from reporting.estimates import gains
from reporting.results import Results
from reporting.task_tables import wide_of
from reporting.time_tables import coherence_points, sizes_of

# More curves on the same axes hide each other, and colours repeat.
MOST_CURVES = 9
MARKERS = "osD"


def draw(
    path: Path, size: tuple[float, float], paint: Callable[[Any], None], *, note: str = ""
) -> str:
    """Let ``paint`` fill a figure of so many inches, and write it, with a note in the file."""
    figure = Figure(figsize=size, layout="constrained")
    paint(figure)
    metadata = {"Description": note} if note else None
    write_atomically(path, lambda part: figure.savefig(part, dpi=150, metadata=metadata))
    return f"{path} written"


# Tasks


def draw_accuracy(results: Results, path: Path) -> str:
    """Mean accuracy by N with its interval over all (run, task) pairs, a curve a method."""
    wide = wide_of(results)
    panels, means = _panels(list(wide)), gains(wide)
    sizes = means.mean.columns

    def paint(figure: Any) -> None:
        figure.suptitle(f"{results['dataset']['name']}, 95% intervals over runs and tasks")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, names in zip(row, panels, strict=True):
            for rank, name in enumerate(names):
                # Each a little to the right of the last, or the bars hide each other.
                places = sizes * (1.0 + 0.03 * (rank - (len(names) - 1) / 2.0))
                mean, low, _, _ = (part.loc[name] for part in means)
                axes.errorbar(places, mean, mean - low, label=name, marker="o", capsize=3.0)
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{n:g}" for n in sizes])
            axes.minorticks_off()
            # A method without a network has no epoch to choose, and trains on all of them.
            label = "N (12 N labels; networks validate on 2 N)"
            axes.set(xlabel=label, ylabel="Test accuracy (%)")
            axes.legend(loc="lower right", fontsize="small")
            axes.label_outer()

    return draw(path, (max(7.0, 4.5 * len(panels)), 5.0), paint)


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
            for marker, (name, curve) in zip(MARKERS, curves, strict=False):
                axes.plot(curve["seconds"], curve[n], marker=marker, markersize=4, label=name)
            axes.set(xscale="log", xlabel="Seconds of pre-training")
            # Powers of ten alone say little of a few of them, and other names run into each other.
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(title=f"N = {n}", ylabel="Test accuracy (%)")
            for mean in scratch.loc[n]:
                axes.axhline(mean, color="0.4", linestyle=":", label="from scratch")
        # One for all panels, where it hides no curve.
        legend = panels[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside lower center", ncols=len(legend[1]))
        tasks = f"means over {results['settings']['tasks']} binary tasks a run"
        figure.suptitle(f"{results['dataset']['name']}: what pre-training buys, {tasks}")

    return draw(path, (4.8 * len(sizes), 4.8), paint)
