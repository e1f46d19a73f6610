"""L_iod at theta0 and nearby against the steps: the appendix's "iodloss_nearby"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reporting.picture import draw_picture

__all__ = ["draw_detachment"]


def draw_detachment(results: dict[str, Any], path: Path) -> str:
    """Draw a log-log panel for each s, and say what was done.

    Parameters
    ----------
    results : dict
        What ``detachment_nearby.py`` writes.
    path : Path
        The PNG.
    """
    # A logarithmic axis has no place for the fresh weights, at step 0.
    records = [record for record in results["records"] if record["step"]]
    if not records:
        return f"{path.name} not drawn: no step was measured yet"
    scales = results["settings"]["squared_scales"]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(scales), squeeze=False, sharex=True, sharey=True)[0]
        steps = np.array([record["step"] for record in records])
        own = np.array([record["at_theta0"] for record in records])
        nearby = np.array([record["nearby"] for record in records])  # (steps, scales, draws)
        for i, (axes, square) in enumerate(zip(panels, scales, strict=True)):
            mean = nearby[:, i].mean(axis=1)
            std = nearby[:, i].std(axis=1, ddof=1) if nearby.shape[2] > 1 else np.zeros_like(mean)
            axes.plot(steps, own, color="C0", label="at theta0")
            axes.plot(steps, mean, color="C1", label="at theta0 + epsilon")
            # A band that reaches 0 or below has no lower end on a logarithmic axis.
            low = np.maximum(mean - std, 0.1 * mean)
            axes.fill_between(steps, low, mean + std, color="C1", alpha=0.3, linewidth=0)
            axes.axhline(1.0, color="0.4", linestyle=":", label="a constant function")
            axes.set(title=rf"$s = \sqrt{{{square:g}}}$", xscale="log", yscale="log", xlabel="Step")
        panels[0].set_ylabel("L_iod")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.suptitle(
            f"{results['dataset']['name']}: L_iod alone is minimised, mean ± std over "
            f"{nearby.shape[2]} perturbations"
        )

    return draw_picture(path, (3.5 * len(scales), 4.1), paint)
