"""Pictures of what the commands measured, each drawn in one step and without a window system.

A function takes what its command writes and the path of the PNG, and says in a line that it was
written, or why not: a missing picture must not cost the figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from protocol.store import write_atomically
from reporting.results import Results
from reporting.statistics import gains
from reporting.study_tables import FORM_NAMES, NOT_RUN, setting_of
from reporting.task_tables import SCRATCH, wide_of
from reporting.time_tables import MARGIN, budget_points, coherence_points
from sklearn_mmdinit.display import PredictionDensityDisplay, TaskAccuracyDisplay

# More curves on the same axes hide each other, and colours repeat.
MOST_CURVES = 9
MARKERS = "osD^v<>Pp*Xh"

# What a density runs over -> what a panel is one of, and what its row says.
DENSITIES = {
    "over_perturbations": ("image", "over perturbations of theta0, at one image a panel"),
    "over_inputs": ("perturbed network", "over images, of one perturbed network a panel"),
}
STYLES = {"theorem": ":", "sub_exponential": "--"}
# Below this share of perturbations nothing is drawn.
FLOOR = 1e-6


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


def _legend_below(figure: Any, axes: Any, columns: int | None = None) -> None:
    """One for all panels, where it hides no curve."""
    own = axes.get_legend_handles_labels()
    figure.legend(*own, loc="outside lower center", ncols=columns or max(len(own[1]), 1))


# Tasks


def draw_accuracy(results: Results, path: Path, title: str = "") -> str:
    """Mean accuracy by N with its interval over all (run, task) pairs, a curve a method."""
    wide = wide_of(results)
    title = title or f"{results['dataset']['name']}, 95% intervals over runs and tasks"
    counts = wide.groupby("n_labels").count()
    common = counts.index[(counts > 0).all(axis=1)]
    if common.empty:
        return f"{path.name} not drawn: there is no N that every method was measured at"
    if (counts.to_numpy() == 1).any():
        return f"{path.name} not drawn: an interval takes two tasks or more"
    if len(common) == 1:
        return _draw_one_n(wide.loc[common], path, title)
    panels = _panels(list(wide))

    def paint(figure: Any) -> None:
        figure.suptitle(title)
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


def _draw_one_n(wide: pd.DataFrame, path: Path, title: str) -> str:
    """One N has no curves: a line for each method, the best one above."""
    # Of accuracies, and not of differences; the mean and its interval are made alike.
    found = pd.DataFrame({end: f.iloc[:, 0] for end, f in gains(wide)._asdict().items()})
    found = found.sort_values("mean")

    def paint(figure: Any) -> None:
        axes, rows = figure.subplots(), range(len(found))
        axes.errorbar(found["mean"], rows, xerr=found["high"] - found["mean"], fmt="o", capsize=4)
        axes.set_yticks(rows, found.index)
        axes.set(xlabel=f"Test accuracy (%), N = {wide.index[0][0]}", title=title)
        axes.grid(axis="x", alpha=0.3)

    return _draw(path, (8.0, 1.5 + 0.35 * len(found)), paint)


def _panels(names: list[str]) -> list[list[str]]:
    """Names that share axes: all of a few; else those that begin alike, and what is left alone."""
    if len(names) <= MOST_CURVES:
        return [names]
    groups: dict[str, list[str]] = {}
    for name in names:
        # Rows on features are of one kind, whichever the classifier.
        groups.setdefault(name.partition("/")[0].partition("+")[0], []).append(name)
    first, *others = groups.values()
    alone = [name for group in others if len(group) == 1 for name in group]
    return [[*first, *alone], *(group for group in others if len(group) > 1)]


# Against time


def _draw_time(axes: Any, curves: Any, value: Any) -> None:
    """A curve a setting, against seconds."""
    for number, (setting, points) in enumerate(curves):
        # Beyond ten settings the colours come again, and the markers tell them apart.
        style = {"marker": MARKERS[number % len(MARKERS)], "color": f"C{number % 10}"}
        axes.plot(points["seconds"], points[value], markersize=4, label=setting, **style)
    axes.set(xscale="log", xlabel="Seconds of pre-training")


def _title(results: Results, runs: list[int]) -> str:
    tasks = " to ".join(str(results["plan"]["tasks"] * n) for n in runs)
    return f"{results['dataset']['name']}: what pre-training buys, means over {tasks} binary tasks"


def draw_budget(results: Results, path: Path) -> str:
    """What ``budget.py`` wrote: a panel for each N and one for the loss, a curve a setting."""
    points, wide = budget_points(results), wide_of(results)
    sizes = [column for column in points if isinstance(column, int)]
    full = points[points["reference"]]

    def paint(figure: Any) -> None:
        *panels, last = figure.subplots(1, len(sizes) + 1)
        for axes, value in zip([*panels, last], [*sizes, "loss"], strict=True):
            _draw_time(axes, points.groupby("setting", sort=False), value)
        for axes, n in zip(panels, sizes, strict=True):
            if len(full):
                (high,), label = full[n], f"full setting, less {MARGIN:g} points"
                axes.axhspan(high - MARGIN, high, color="0.85", zorder=0, label=label)
            _draw_scratch(axes, wide, n)
            axes.set(title=f"N = {n}", ylabel="Test accuracy (%)")
        last.set(title="Loss at theta0", ylabel="The paper's loss, on the same rows for all")
        _legend_below(figure, panels[0], columns=6)
        figure.suptitle(_title(results, [results["plan"]["runs"]]))

    return _draw(path, (4.5 * (len(sizes) + 1), 4.8), paint)


def _draw_scratch(axes: Any, wide: pd.DataFrame, n: int) -> None:
    if SCRATCH in wide and wide.loc[n, SCRATCH].notna().any():
        mean = wide.loc[n, SCRATCH].mean()
        axes.axhline(mean, color="0.4", linestyle=":", label="from scratch")


def draw_coherence(results: Results, path: Path) -> str:
    """What ``coherence.py`` wrote: accuracy against time, a panel for each N, a curve a setting."""
    settings, accuracy, _ = coherence_points(results)
    timed = settings[settings["section"] == "time"].join(accuracy)
    if timed.empty:
        return f"{path.name} not drawn: nothing was measured against time"

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(accuracy.columns), squeeze=False)[0]
        for axes, n in zip(panels, accuracy, strict=True):
            _draw_time(axes, timed.groupby("name", sort=False), n)
            _draw_scratch(axes, wide_of(results), n)
            axes.set(title=f"N = {n}", ylabel="Test accuracy (%)")
            _plain_log_ticks(axes.xaxis)
        _legend_below(figure, panels[0])
        figure.suptitle(_title(results, sorted(timed["runs"].unique())))

    return _draw(path, (5.0 * len(accuracy.columns), 4.5), paint)


# The appendix


def draw_densities(results: Results, path: Path) -> str:
    """Densities of predictions around theta0, before and after: the appendix's "degenerate_ex"."""
    found = {setting_of(r): r["densities"] for r in results["records"] if "densities" in r}
    before = found.pop(None, None)
    if before is None or not found:
        return f"{path.name} not drawn: no setting with densities was run yet"
    rows = [(setting, over) for setting in found for over in DENSITIES]

    def paint(figure: Any) -> None:
        parts = figure.subfigures(len(rows), 1, squeeze=False).ravel()
        for part, (setting, over) in zip(parts, rows, strict=True):
            (lam, xi), (noun, words) = setting or (0.0, 0.0), DENSITIES[over]
            samples = {"before": before[over], "after": found[setting][over]}
            names = [f"{noun} {i + 1}" for i in range(len(before[over]))]
            axes = part.subplots(1, len(names), squeeze=False, sharex=True)[0]
            arrays = {name: np.asarray(values) for name, values in samples.items()}
            PredictionDensityDisplay(arrays, names).plot(ax=axes)
            part.suptitle(f"lambda = {lam:g}, xi = {xi:g}: {words}", fontweight="bold")
            axes[0].get_legend().remove()
        _legend_below(figure, axes[0])

    return _draw(path, (13.0, 3.0 * len(rows)), paint)


def draw_detachment(results: Results, path: Path) -> str:
    """L_iod at theta0 and nearby against the steps, a panel for each s: "iodloss_nearby"."""
    # A logarithmic axis has no place for the fresh weights, at step 0.
    records = [record for record in results["records"] if record["step"]]
    if not records:
        return f"{path.name} not drawn: no step was measured yet"
    scales = results["settings"]["squared_scales"]
    steps = [record["step"] for record in records]
    nearby = np.array([record["nearby"] for record in records])  # (steps, scales, draws)
    means = nearby.mean(axis=2)
    stds = nearby.std(axis=2, ddof=1) if nearby.shape[2] > 1 else np.zeros_like(means)

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(scales), squeeze=False, sharex=True, sharey=True)[0]
        for axes, square, mean, std in zip(panels, scales, means.T, stds.T, strict=True):
            axes.plot(steps, [r["at_theta0"] for r in records], color="C0", label="at theta0")
            axes.plot(steps, mean, color="C1", label="at theta0 + epsilon")
            # A band that reaches 0 or below has no lower end on a logarithmic axis.
            low = np.maximum(mean - std, 0.1 * mean)
            axes.fill_between(steps, low, mean + std, color="C1", alpha=0.3, linewidth=0)
            axes.axhline(1.0, color="0.4", linestyle=":", label="a constant function")
            axes.set(title=rf"$s = \sqrt{{{square:g}}}$", xscale="log", yscale="log", xlabel="Step")
        panels[0].set_ylabel("L_iod")
        _legend_below(figure, panels[0])
        figure.suptitle(
            f"{results['dataset']['name']}: L_iod alone is minimised, mean ± std over "
            f"{nearby.shape[2]} perturbations"
        )

    return _draw(path, (3.5 * len(scales), 4.1), paint)


def draw_uniformity(results: Results, path: Path) -> str:
    """L_uni along the steps, a panel for each s and a curve for each lambda: "uniform_loss"."""
    if not results["records"]:
        return f"{path.name} not drawn: nothing was run yet"
    settings = results["settings"]
    runs = pd.DataFrame(results["records"]).groupby(["squared_scale", "degeneracy_weight"])

    def paint(figure: Any) -> None:
        scales, lines = settings["squared_scales"], {}
        panels = figure.subplots(1, len(scales), squeeze=False, sharex=True, sharey=True)[0]
        for axes, square in zip(panels, scales, strict=True):
            for number, weight in enumerate(settings["weights"]):
                if (square, weight) in runs.groups:
                    own = runs.get_group((square, weight))
                    lines[f"lambda = {weight:g}"] = _draw_curve(axes, own, f"C{number}")
            if not axes.lines:
                axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", color="0.4")
            axes.axhline(0.0, color="0.4", linestyle=":", linewidth=1.0)
            axes.set(title=rf"$s = \sqrt{{{square:g}}}$", xscale="log", xlabel="Step")
            _plain_log_ticks(axes.xaxis)
        panels[0].set_ylabel("L_uni, mean of a window")
        names = sorted(lines)
        figure.legend(
            [lines[name] for name in names], names, loc="outside lower center", ncols=len(names)
        )
        figure.suptitle(
            f"{results['dataset']['name']}: L_uni while theta0 is learned with xi = 1, "
            f"K = {settings['n_perturbations']}, {settings.get('kernels', 'sum')} of its kernels"
        )

    return _draw(path, (3.5 * len(settings["squared_scales"]), 4.0), paint)


def _draw_curve(axes: Any, runs: pd.DataFrame, color: str) -> Any:
    """The mean over the runs, and a band of their std where there are several."""
    # A run whose loss was not finite ends early.
    n = runs["steps"].map(len).min()
    steps, values = runs["steps"].iloc[0][:n], np.array([v[:n] for v in runs["uniformity"]])
    mean = values.mean(axis=0)
    (line,) = axes.plot(steps, mean, color=color)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        axes.fill_between(steps, mean - std, mean + std, color=color, alpha=0.25, linewidth=0)
    return line


# The theorems


def draw_theorems(results: Results, path: Path) -> str:
    """What is found beside the bounds: two panels for the first theorem, one for each other."""
    by_theorem = {n: [r for r in results["records"] if r["theorem"] == n] for n in (1, 2, 3)}
    if not all(by_theorem.values()):
        return f"{path.name} not drawn: not every theorem was measured yet"
    equal, networks = (
        [record for record in by_theorem[1] if ("equal" in record["case"]) == wanted]
        for wanted in (True, False)
    )

    def paint(figure: Any) -> None:
        (first, second), (third, fourth) = figure.subplots(2, 2)
        _draw_tails(first, equal, "Theorem 1: m parameters of equal variance")
        _draw_tails(second, networks, "Theorem 1: the paper's law for 784-w-w-w-2")
        _draw_classes(third, by_theorem[2])
        _draw_jacobians(fourth, pd.DataFrame(by_theorem[3]))
        for axes in (first, second, third, fourth):
            axes.legend(fontsize="small")

    return _draw(path, (11.0, 8.0), paint)


def _draw_tails(axes: Any, records: list[dict[str, Any]], title: str) -> None:
    for number, record in enumerate(records):
        color, scale = f"C{number}", record["root_mean_square_norm"]
        forms = {form: pd.DataFrame(points) for form, points in record["forms"].items()}
        found = pd.concat(forms.values()).sort_values("radii")
        found = found[found["frequencies"] > 0]
        axes.plot(found["radii"] / scale, found["frequencies"], color=color, label=record["case"])
        for form, points in forms.items():
            x = points["radii"] / scale
            axes.plot(x, points["bounds"], color=color, linestyle=STYLES[form])
    for form, style in STYLES.items():
        axes.plot([], [], color="0.3", linestyle=style, label=f"bound {FORM_NAMES[form]}")
    axes.set(
        title=title,
        xscale="log",
        yscale="log",
        ylim=(FLOOR, 1.5),
        xlabel="Radius of the ball / root mean square length",
        ylabel="Share of perturbations outside",
    )
    _plain_log_ticks(axes.xaxis)
    axes.set_xlim(right=2.0 * axes.get_xlim()[1])  # a place for the legend


def _draw_classes(axes: Any, records: list[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        x = np.sqrt(record["n_classes"]) * np.array(record["distances"])
        style = {"s": 9, "alpha": 0.5, "linewidth": 0, "color": f"C{number}"}
        axes.scatter(x, record["shares"], label=record["case"], **style)
    axes.plot([0.0, 1.0, axes.get_xlim()[1]], [1.0, 0.0, 0.0], "k--", label="bound")
    axes.set(
        title="Theorem 2: a class of a perturbed network a point",
        xlabel="sqrt(d) x mean distance of predictions to the class's vertex",
        ylabel="Share of images given to the class",
    )


def _draw_jacobians(axes: Any, found: pd.DataFrame) -> None:
    width, exact, spread = found["width"], found["expected_mean"], found["expected_std"]
    axes.fill_between(width, exact - spread, exact + spread, color="C0", alpha=0.2, linewidth=0)
    axes.plot(width, exact, color="C0", label="exact mean ± std at that width")
    style = {"fmt": "o", "color": "C1", "markersize": 4, "capsize": 3}
    axes.errorbar(width, found["mean"], yerr=found["std"], label="found", **style)
    axes.axhline(1.0, color="0.3", linestyle=":", label="the theorem's limit")
    axes.set(
        title="Theorem 3: He's weights",
        xscale="log",
        xlabel="Width n",
        ylabel="Norm of a row of a layer's Jacobian",
    )
