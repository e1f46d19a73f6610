"""What ``theorems.py`` measured: a row for each case, and whether the theorem holds there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reporting.table import Table, as_text

__all__ = ["FORM_NAMES", "theorems_table", "theorems_text"]

FORM_NAMES = {"theorem": "as stated", "sub_exponential": "of its proof"}


def _row(record: dict[str, Any], case: str, text: str, holds: list[bool]) -> list[str]:
    wrong = len(holds) - sum(holds)
    said = "yes" if not wrong else f"not at {wrong:,}"
    return [str(record["theorem"]), case, f"{len(holds):,}", text, said]


def _tail_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    scale = record["root_mean_square_norm"]
    found = record["radius_of_one_percent"] / scale
    for form, points in record["forms"].items():
        bound = np.interp(np.log(100.0), -np.log(points["bounds"]), points["radii"]) / scale
        case = f"{record['case']}, {FORM_NAMES[form]}"
        text = f"1 % lie outside of {found:.3f} rms, the bound says {bound:.3f}"
        yield _row(record, case, text, points["holds"])


def _class_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    bounds, shares = np.array(record["bounds"]), np.array(record["shares"])
    n_above = int((bounds > 0.0).sum())
    text = f"the bound is above 0 at {n_above:,} points; {int((shares > 0).sum()):,} have a share"
    yield _row(record, record["case"], text, record["holds"])


def _jacobian_rows(record: dict[str, Any]) -> Iterator[list[str]]:
    text = (
        f"{record['mean']:.4f} ± {record['std']:.4f} in {record['n_networks']:,} networks, "
        f"exact {record['expected_mean']:.4f} ± {record['expected_std']:.4f}"
    )
    yield _row(record, record["case"], text, record["holds"])


_ROWS = {1: _tail_rows, 2: _class_rows, 3: _jacobian_rows}


def theorems_table(results: dict[str, Any]) -> Table:
    """One row for each case, for each form of the bound where there are two.

    Parameters
    ----------
    results : dict
        What ``theorems.py`` writes.
    """
    rows = [row for record in results["records"] for row in _ROWS[record["theorem"]](record)]
    title = (
        "The theorems against what is found. 1: share of perturbations outside of a ball, at most "
        "the bound; radii in root mean square lengths (rms). 2: share of images that a network "
        "gives to a class, at least the bound. 3: norm of a row of a layer's Jacobian under He's "
        "weights, mean ± std, near 1 for large n"
    )
    head = ["theorem", "case", "points", "figures", "holds"]
    return Table(title, head, rows)


def theorems_text(results: dict[str, Any]) -> str:
    """All that is printed."""
    return as_text(theorems_table(results))
