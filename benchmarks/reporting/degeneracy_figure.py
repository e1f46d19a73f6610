"""Densities of predictions around theta0, before and after: the appendix's "degenerate_ex"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reporting.degeneracy_tables import setting_of
from reporting.picture import draw_picture
from sklearn_mmdinit.display import PredictionDensityDisplay

__all__ = ["draw_densities"]

# What a density runs over -> what a panel is one of, and what its row says.
ROWS = {
    "over_perturbations": ("image", "over perturbations of theta0, at one image a panel"),
    "over_inputs": ("perturbed network", "over images, of one perturbed network a panel"),
}


def draw_densities(results: dict[str, Any], path: Path) -> str:
    """Draw two rows of panels for each setting that has densities, and say what was done.

    Parameters
    ----------
    results : dict
        What ``degeneracies.py`` writes.
    path : Path
        The PNG.
    """
    with_densities = [
        (setting_of(r), r["densities"]) for r in results["records"] if "densities" in r
    ]
    before = next((densities for setting, densities in with_densities if setting is None), None)
    found = {setting: densities for setting, densities in with_densities if setting is not None}
    if before is None or not found:
        return f"{path.name} not drawn: no setting with densities was run yet"

    def paint(figure: Any) -> None:
        parts = figure.subfigures(len(ROWS) * len(found), 1, squeeze=False).ravel()
        rows = [(setting, over) for setting in found for over in ROWS]
        for part, ((lam, xi), over) in zip(parts, rows, strict=True):
            noun, words = ROWS[over]
            samples = {"before": before[over], "after": found[lam, xi][over]}
            names = [f"{noun} {i + 1}" for i in range(len(before[over]))]
            axes = part.subplots(1, len(names), squeeze=False, sharex=True)[0]
            arrays = {name: np.asarray(values) for name, values in samples.items()}
            PredictionDensityDisplay(arrays, names).plot(ax=axes)
            part.suptitle(f"lambda = {lam:g}, xi = {xi:g}: {words}", fontweight="bold")
            # One for all rows, below them: in a panel it would hide a part of the curves.
            handles, labels = axes[0].get_legend_handles_labels()
            axes[0].get_legend().remove()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))

    return draw_picture(path, (13.0, 3.0 * len(ROWS) * len(found)), paint)
