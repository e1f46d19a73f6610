"""Theta0 learned with products of rounded factors beside the same without."""

from __future__ import annotations

from typing import Any

from reporting.library import Library
from reporting.table import Table
from reporting.task_tables import accuracies_of, gain_text, paired_difference, unpack_scores

__all__ = ["precision_table"]

FILES = {"float32": "mnist-short.json", "bfloat16": "mnist-short-bfloat16.json"}
ROW = "xavier/fcn/ours"


def _best_loss(results: dict[str, Any]) -> float:
    (loss,) = (t["best_loss"] for t in results["theta0"] if t["method"] == ROW)
    return float(loss)


def precision_table(library: Library) -> Table:
    """The lowest loss of a window, and accuracies on the same tasks with their difference."""
    found = {name: library.results(file) for name, file in FILES.items()}
    given = {name: results for name, results in found.items() if results is not None}
    cells = {name: accuracies_of(unpack_scores(r["scores"])) for name, r in given.items()}
    sizes = sorted({n for own in cells.values() for row, n in own if row == ROW})
    rows = []
    for name, results in given.items():
        own = [cells[name][ROW, n] for n in sizes]
        means = [f"{sum(cell.values()) / len(cell):.2f}" for cell in own]
        rows.append([name, f"{_best_loss(results):.4f}", *means])
    if len(given) == len(FILES):
        one, other = reversed(cells.values())
        gains = [paired_difference(one[ROW, n], other[ROW, n]) for n in sizes]
        rows.append(["difference", "", *map(gain_text, gains)])
    title = f"Products of rounded factors, {ROW}: lowest loss of a window, test accuracy (%)"
    return Table(title, ["precision", "loss", *(f"N = {n}" for n in sizes)], rows)
