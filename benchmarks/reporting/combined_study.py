"""Results of a command of the paper's appendix that were measured in parts, as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from reporting.combined import check_equal, made_with_of, take

__all__ = ["HEADS", "combined_study", "study_of"]

HEADS = {
    "degeneracies.py": ("degeneracy_weight", "detachment_weight"),
    "scale_and_weight.py": ("run", "squared_scale", "degeneracy_weight"),
}
"""By command, what a record is of; nothing but None is the fresh weights."""

# What a part may have more of: values that are shown, and runs.
LISTS = {"degeneracies.py": ("shown",), "scale_and_weight.py": ("squared_scales", "weights")}
OF_A_PART = {"runs", "device", "precision"}
# What came later has been this before.
BEFORE = {"kernels": "sum", "jacobian_at": "pre_activation"}


def study_of(results: dict[str, Any]) -> str | None:
    """The command that wrote a file, or None where it is none of these."""
    if not {"settings", "records"} <= results.keys():
        return None
    return next(
        (script for script, names in LISTS.items() if results["settings"].keys() >= set(names)),
        None,
    )


def _common(script: str, part: dict[str, Any]) -> dict[str, Any]:
    own = OF_A_PART.union(LISTS[script])
    settings = {k: v for k, v in (BEFORE | part["settings"]).items() if k not in own}
    return {"dataset": part["dataset"]["name"]} | settings


def _union(lists: Iterable[list[Any]]) -> list[Any]:
    """Values in the order in which they first come, numbers in their own."""
    values: list[Any] = []
    for one in lists:
        values += [value for value in one if value not in values]
    return values if any(isinstance(value, list) for value in values) else sorted(values)


def combined_study(script: str, parts: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """One file of results from several.

    Parameters
    ----------
    script : str
        A key of ``HEADS``.
    parts : sequence of (str, dict)
        Names, for errors, and results as the command writes them, or this function.

    Returns
    -------
    dict
        The same with the records of all, and under "parts" what each part was made with. Fresh
        weights are those of the first part.

    Raises
    ------
    PartsDifferError
        If they are of other data or settings, or have something but fresh weights in common.
    """
    first = parts[0][1]
    seen: dict[tuple[Any, ...], str] = {}
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    made: list[dict[str, Any]] = []
    runs = 0
    for name, part in parts:
        check_equal(_common(script, first), _common(script, part), name)
        for record in part["records"]:
            head = tuple(record[field] for field in HEADS[script])
            if any(value is not None for value in head):
                words = ", ".join(f"{f}={v:g}" for f, v in zip(HEADS[script], head, strict=True))
                take(seen, head, name, words)
            records.setdefault(head, record)
        runs = max(runs, part["settings"].get("runs", 0))
        made += part.get("parts") or [made_with_of(part, "settings")]
    lists = {key: _union(part["settings"][key] for _, part in parts) for key in LISTS[script]}
    # The fresh weights come first.
    order = sorted(records, key=lambda head: [-1.0 if value is None else value for value in head])
    return {
        "claim": first.get("claim"),
        "dataset": first["dataset"],
        "settings": first["settings"] | lists | ({"runs": runs} if runs else {}),
        "parts": made,
        "records": [records[head] for head in order],
    }
