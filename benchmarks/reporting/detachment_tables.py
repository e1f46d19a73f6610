"""L_iod at theta0 and nearby, before any step and after some, of ``detachment_nearby.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from reporting.table import Table, as_text

__all__ = ["detachment_table", "detachment_text"]

# Rows of the table; the picture has them all.
N_ROWS = 6


def detachment_table(results: dict[str, Any]) -> Table:
    """A row for some of the steps, from the first to the last."""
    scales, records = results["settings"]["squared_scales"], results["records"]
    chosen = np.unique(np.linspace(0, len(records) - 1, N_ROWS).round().astype(int))
    rows = []
    for record in [records[i] for i in chosen] if records else []:
        cells = [_mean_and_std(values) for values in record["nearby"]]
        rows.append([f"{record['step']:,}", f"{record['at_theta0']:.3g}", *cells])
    head = ["step", "at theta0", *(f"s^2 = {square:g}" for square in scales)]
    n_draws = results["settings"]["draws"]
    title = f"L_iod at theta0 and near it (mean ± std over {n_draws} perturbations)"
    return Table(title, head, rows)


def _mean_and_std(values: list[float]) -> str:
    mean = f"{np.mean(values):.3g}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.2g}"


def detachment_text(results: dict[str, Any]) -> str:
    """All that is printed, the paper's finding beside it."""
    said = (
        "The paper: nearby it falls with that of theta0 for s^2 = 0.2 and 0.5, and less and less "
        "for larger s."
    )
    return f"{as_text(detachment_table(results))}\n{said}"
