"""Results of ``mnist_tasks.py`` that were measured in parts, as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from protocol.network_kinds import NETWORK_KINDS
from protocol.rivals import ALL_RIVALS
from reporting.against_table import against, against_records
from reporting.task_tables import pack_scores, summarize, unpack_scores

__all__ = ["PartsDifferError", "check_equal", "combined", "made_with_of", "take"]

# What a part may have of its own.
OF_A_PART = {
    "methods",
    "n_labels",
    "runs",
    "first_run",
    "rivals",
    "device",
    "precision",
    "preset",
    "coherent_passes",
}
# What came later has been this before.
BEFORE = {
    "classes": 2,
    "draw": "uniform",
    "network": "mlp",
    "augmentation": "none",
    "neighbors": "pixels",
    "separation": 2.0,
    "rounds": 1,
    "kernels": "sum",
}

MADE_WITH = (
    "seconds_of_this_call",
    "versions",
    "hardware",
    "git_commit",
    "git_changed",
    "measured_at_commits",
    "measured_on",
)


class PartsDifferError(ValueError):
    """Results that are not parts of one measurement."""


def _common(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (BEFORE | settings).items() if name not in OF_A_PART}


def _check(first: dict[str, Any], other: dict[str, Any], name: str) -> None:
    if first["dataset"]["name"] != other["dataset"]["name"]:
        raise PartsDifferError(
            f"{name} is of {other['dataset']['name']}, and not of {first['dataset']['name']}"
        )
    check_equal(_common(first["settings"]), _common(other["settings"]), name)


def check_equal(first: dict[str, Any], other: dict[str, Any], name: str) -> None:
    """Raise PartsDifferError where what two parts have in common differs."""
    for key in sorted(first.keys() | other.keys()):
        if first.get(key) != other.get(key):
            raise PartsDifferError(
                f"{name} has {key}={other.get(key)!r}, and not {first.get(key)!r}"
            )


def take(seen: dict[Any, str], cell: Any, name: str, words: str) -> None:
    """Note which part has a cell; raise PartsDifferError where one before has it too."""
    if cell in seen:
        raise PartsDifferError(f"{seen[cell]} and {name} both have {words}")
    seen[cell] = name


def made_with_of(part: dict[str, Any], settings: str) -> dict[str, Any]:
    """What a report says of a part; ``settings`` is the key of what was asked for."""
    learned = part.get("theta0") or [r["theta0"] for r in part.get("records", []) if "theta0" in r]
    seconds = [{"seconds": theta0["seconds"]} for theta0 in learned]
    made = {key: part.get(key) for key in MADE_WITH}
    return {settings: part.get(settings)} | made | {"theta0": seconds}


def combined(parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One file of results from several.

    Parameters
    ----------
    parts : sequence of (str, dict)
        Names, for errors, and results as ``mnist_tasks.py`` writes them, or this function.

    Returns
    -------
    dict
        The same with all scores, and under "parts" what each part was made with.

    Raises
    ------
    PartsDifferError
        If they are of other data, tasks or settings, or have a method, run and N in common.
    """
    first = parts[0][1]
    seen: dict[tuple[Any, ...], str] = {}
    entries: list[dict[str, Any]] = []
    theta0s: list[dict[str, Any]] = []
    made: list[dict[str, Any]] = []
    for name, part in parts:
        _check(first, part, name)
        for entry in part["scores"]:
            cell = (entry["method"], entry["run"], entry["n_labels"])
            take(seen, cell, name, f"{cell[0]} at N = {cell[2]} in run {cell[1]}")
            entries.append(entry)
        theta0s += part["theta0"]
        made += part.get("parts") or [made_with_of(part, "settings")]
    rows = (*NETWORK_KINDS[first["settings"].get("network", "mlp")].names, *ALL_RIVALS)
    order = {name: place for place, name in enumerate(rows)}
    entries.sort(key=lambda e: (order[e["method"]], e["n_labels"], e["run"]))
    scores = unpack_scores(entries)
    runs = sorted({entry["run"] for entry in entries})
    return {
        "claim": first.get("claim"),
        "dataset": first["dataset"],
        "settings": _common(first["settings"])
        | {
            "methods": [name for name in rows if any(e["method"] == name for e in entries)],
            "n_labels": sorted({entry["n_labels"] for entry in entries}),
            "runs": len(runs),
            "first_run": runs[0],
        },
        "parts": made,
        "summary": [asdict(summary) for summary in summarize(scores)],
        "against": against_records(against(scores)),
        "theta0": sorted(theta0s, key=lambda t: (t["run"], order.get(t["method"], len(order)))),
        "scores": pack_scores(scores),
    }
