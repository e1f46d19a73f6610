"""The table of seconds on each engine."""

from __future__ import annotations

from typing import Any

from reporting.table import Table

__all__ = ["backends_table"]


def backends_table(results: dict[str, Any]) -> Table:
    """One row an engine, from what ``backends.py`` writes."""
    rows = [
        [
            name,
            f"{found['start']:.1f} s",
            f"{found['first_round']:.1f} s",
            f"{found['rounds']['median']:.1f} s",
            f"{found['times_of_loky']['median']:.2f}",
        ]
        for name, found in results["engines"].items()
    ]
    title = (
        f"{results['fits']} fits on {results['dataset']['name']}, {results['jobs']} workers, the "
        "same figures on each"
    )
    return Table(title, ["backend", "to start", "first round", "a round", "times loky"], rows)
