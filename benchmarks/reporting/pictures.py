"""Pictures of what the commands measured, each drawn in one step and without a window system."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from protocol.methods import SCRATCH
from protocol.store import write_atomically
from reporting.results import Results
from reporting.task_tables import wide_of
from reporting.time_tables import coherence_points, sizes_of

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


def draw_coherence(results: Results, path: Path) -> str:
    """A panel for each N, a curve an objective of ``coherence.py``, against seconds."""
    points = coherence_points(results)
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
