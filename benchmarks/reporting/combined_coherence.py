"""Results of ``coherence.py`` that were measured in parts, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.coherence_bench import METHOD
from protocol.coherence_settings import Setting
from reporting.coherence_tables import as_records, points_of_results, setting_of_record
from reporting.combined import check_equal, made_with_of, take

__all__ = ["combined_coherence"]

# What a part may have of its own.
OF_A_PART = ("settings", "runs", "first_run", "device")


def _common(part: dict[str, Any]) -> dict[str, Any]:
    plan = {name: value for name, value in part["plan"].items() if name not in OF_A_PART}
    return {"dataset": part["dataset"]["name"]} | plan


def combined_coherence(parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One file of results from several.

    Parameters
    ----------
    parts : sequence of (str, dict)
        Names, for errors, and results as ``coherence.py`` writes them, or this function. Settings
        stand in the order in which they first come.

    Returns
    -------
    dict
        The same with every theta0 and all scores, and under "parts" what each part was made with.
        Of a run in several parts the network from scratch is the first one's.

    Raises
    ------
    PartsDifferError
        If they are of other data or tasks, or have a setting and run in common.
    """
    first = parts[0][1]
    seen: dict[tuple[str, int], str] = {}
    theta0s: list[dict[str, Any]] = []
    scores: dict[tuple[str, int, int], dict[str, Any]] = {}
    made: list[dict[str, Any]] = []
    settings: dict[str, dict[str, Any]] = {}
    for name, part in parts:
        check_equal(_common(first), _common(part), name)
        for record in part["theta0"]:
            cell = (setting_of_record(record).method, record["run"])
            take(seen, cell, name, f"{cell[0]} in run {cell[1]}")
            theta0s.append(record)
        for entry in part["scores"]:
            scores.setdefault((entry["method"], entry["run"], entry["n_labels"]), entry)
        for setting in part["plan"]["settings"]:
            settings.setdefault(Setting(**setting).method, setting)
        made += part.get("parts") or [made_with_of(part, "plan")]
    order = {name: place for place, name in enumerate([METHOD.scratch, *settings])}
    entries = sorted(scores.values(), key=lambda e: (e["run"], order[e["method"]], e["n_labels"]))
    runs = sorted({entry["run"] for entry in entries})
    results = {
        "claim": first.get("claim"),
        "dataset": first["dataset"],
        "plan": first["plan"]
        | {"settings": list(settings.values()), "runs": len(runs), "first_run": runs[0]},
        "parts": made,
        "theta0": sorted(theta0s, key=lambda t: (order[setting_of_record(t).method], t["run"])),
        "scores": entries,
    }
    return results | {"points": as_records(points_of_results(results))}
