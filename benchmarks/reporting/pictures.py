"""Pictures of what the commands measured, each drawn in one step and without a window system.

A function takes what its command writes and the path of the PNG, and says in a line that it was
written, or why not: a missing picture must not cost the figures.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from protocol.methods import SCRATCH
from protocol.store import write_atomically
from reporting.data_tables import LINE, means_of
from reporting.estimates import alike, critical_difference, gains, ranks_of
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


# Sets of several kinds


def draw_ranks(results: Results, path: Path) -> str:
    """Demsar's critical differences: mean ranks, bars over those that do not differ, by N."""
    accuracies = means_of(results)
    panels = {n: group for n, group in accuracies.groupby("n_labels") if len(group) > 1}
    if not panels or len(accuracies.columns) < 3:
        return f"{path.name} not drawn: ranks take two sets and three methods or more"
    n_methods = len(accuracies.columns)

    def paint(figure: Any) -> None:
        title = (
            "Mean ranks of the accuracy; bars join what Nemenyi's test at 95 % does not tell apart"
        )
        figure.suptitle(title, fontsize="medium")
        column = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
        for axes, (n, group) in zip(column, panels.items(), strict=True):
            critical = critical_difference(n_methods, len(group))
            _paint_ranks(axes, ranks_of(group).mean().sort_values(), critical)
            axes.set_title(f"N = {n}, {len(group)} sets", loc="left", fontsize="medium")

    height = 0.9 + 0.2 * (n_methods / 2)
    return draw(path, (8.5, 0.5 + (height + 0.6) * len(panels)), paint)


def _paint_ranks(axes: Any, ranks: pd.Series, critical: float) -> None:
    """The axis on top, bars below it, then names: the better half at the left, best on top."""
    n, line, colour = len(ranks), 0.35, "0.35"
    # Above the axis its numbers and the critical difference, below it the bars and the names.
    groups = alike(ranks, critical)
    first_name = line * (len(groups) + 1.5)
    left, right = 1 - 0.08 * n, n + 0.08 * n
    axes.plot([1, n], [0, 0], color="black", linewidth=1)
    for tick in range(1, n + 1):
        axes.plot([tick, tick], [0, -0.2], color="black", linewidth=1)
        axes.text(tick, -0.3, str(tick), ha="center", va="bottom", fontsize="small")
    axes.plot([1, 1 + critical], [-1.9, -1.9], color="black", linewidth=2, marker="|")
    words = f"critical difference {critical:.2f}"
    axes.text(1 + critical + 0.2, -1.9, words, va="center", fontsize="small")
    for number, (first, last) in enumerate(groups, 1):
        spread = [first - 0.05, last + 0.05]
        axes.plot(spread, [line * number] * 2, color="black", linewidth=3, solid_capstyle="round")
    half = (n + 1) // 2
    for place, (name, rank) in enumerate(ranks.items()):
        better = place < half
        # The outer names are nearest to the axis, so that no line crosses another.
        depth = first_name + (place if better else n - 1 - place)
        end = left if better else right
        style = {"color": "C3"} if name == LINE else {"color": colour}
        axes.plot([rank, rank, end], [0, depth, depth], linewidth=0.8, **style)
        words = f"{name}  {rank:.1f}" if better else f"{rank:.1f}  {name}"
        where = {"ha": "right" if better else "left", "va": "center", "fontsize": "small"}
        axes.text(end + (-0.1 if better else 0.1), depth, words, **where, **style)
    axes.set(xlim=(left - 0.25 * n, right + 0.25 * n), ylim=(first_name + half, -2.6))
    axes.axis("off")
