"""The paper's theorems and what is found, in four panels: two for the first, one for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reporting.picture import draw_picture, plain_log_ticks
from reporting.theorem_tables import FORM_NAMES

__all__ = ["draw_theorems"]

STYLES = {"theorem": ":", "sub_exponential": "--"}
FLOOR = 1e-6


def draw_theorems(results: dict[str, Any], path: Path) -> str:
    """Draw what is found beside the bounds, and say what was done.

    Parameters
    ----------
    results : dict
        What ``theorems.py`` writes.
    path : Path
        The PNG.
    """
    by_theorem: dict[int, list[dict[str, Any]]] = {1: [], 2: [], 3: []}
    for record in results["records"]:
        by_theorem[record["theorem"]].append(record)
    if not all(by_theorem.values()):
        return f"{path.name} not drawn: not every theorem was measured yet"
    equal = [record for record in by_theorem[1] if "equal" in record["case"]]
    networks = [record for record in by_theorem[1] if "equal" not in record["case"]]

    def paint(figure: Any) -> None:
        (first, second), (third, fourth) = figure.subplots(2, 2)
        _draw_tails(first, equal, "Theorem 1: m parameters of equal variance")
        _draw_tails(second, networks, "Theorem 1: the paper's law for 784-w-w-w-2")
        _draw_classes(third, by_theorem[2])
        _draw_jacobians(fourth, by_theorem[3])

    return draw_picture(path, (11.0, 8.0), paint)


def _draw_tails(axes: Any, records: list[dict[str, Any]], title: str) -> None:
    for number, record in enumerate(records):
        color, scale = f"C{number}", record["root_mean_square_norm"]
        found = np.concatenate(
            [np.transpose([p["radii"], p["frequencies"]]) for p in record["forms"].values()]
        )
        radii, frequencies = found[np.argsort(found[:, 0])].T
        seen = frequencies > 0
        axes.plot(radii[seen] / scale, frequencies[seen], color=color, label=record["case"])
        for form, points in record["forms"].items():
            x = np.array(points["radii"]) / scale
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
    plain_log_ticks(axes.xaxis)
    axes.set_xlim(right=2.0 * axes.get_xlim()[1])  # a place for the legend
    axes.legend(fontsize="small")


def _draw_classes(axes: Any, records: list[dict[str, Any]]) -> None:
    for number, record in enumerate(records):
        axes.scatter(
            np.sqrt(record["n_classes"]) * np.array(record["distances"]),
            record["shares"],
            s=9,
            alpha=0.5,
            linewidth=0,
            color=f"C{number}",
            label=record["case"],
        )
    far = axes.get_xlim()[1]
    axes.plot([0.0, 1.0, far], [1.0, 0.0, 0.0], "k--", label="bound")
    axes.set(
        title="Theorem 2: a class of a perturbed network a point",
        xlabel="sqrt(d) x mean distance of predictions to the class's vertex",
        ylabel="Share of images given to the class",
    )
    axes.legend(fontsize="small")


def _draw_jacobians(axes: Any, records: list[dict[str, Any]]) -> None:
    width, mean, std, expected, spread = (
        np.array([record[name] for record in records])
        for name in ("width", "mean", "std", "expected_mean", "expected_std")
    )
    axes.fill_between(
        width, expected - spread, expected + spread, color="C0", alpha=0.2, linewidth=0
    )
    axes.plot(width, expected, color="C0", label="exact mean ± std at that width")
    axes.errorbar(
        width, mean, yerr=std, fmt="o", color="C1", markersize=4, capsize=3, label="found"
    )
    axes.axhline(1.0, color="0.3", linestyle=":", label="the theorem's limit")
    axes.set(
        title="Theorem 3: He's weights",
        xscale="log",
        xlabel="Width n",
        ylabel="Norm of a row of a layer's Jacobian",
    )
    axes.legend(fontsize="small")
