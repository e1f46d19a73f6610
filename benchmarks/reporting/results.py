"""The committed results as tidy tables: a row a measurement."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from reporting.estimates import N

Results = dict[str, Any]
"""What a file of results holds."""

SCORE = ["method", "run", "n_labels", "task", "accuracy"]


@dataclass(frozen=True, eq=False)
class Library:
    """A folder with files of results, which do not change, and notes that a person wrote."""

    folder: Path

    def results(self, file: str) -> Results:
        """What a file of results holds."""
        try:
            return json.loads((self.folder / file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"results {file!r} cannot be read: {error}") from error

    def note(self, heading: str) -> str:
        """What the note named as a heading's anchor says, or nothing where there is none."""
        name = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        path = self.folder / "notes" / f"{name}.md"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def pack_scores(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each method, run and N: short to store, and every score (0 to 1) in it."""
    frame = pd.DataFrame(list(records), columns=SCORE)
    return [
        {"method": method, "run": int(run), "n_labels": int(n)}
        | {"tasks": group["task"].tolist(), "accuracies": group["accuracy"].tolist()}
        for (method, run, n), group in frame.groupby(["method", "run", "n_labels"], sort=False)
    ]


def unpack_scores(entries: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """One row a score again: method, run, n_labels, task and accuracy in percent."""
    rows = [
        (entry["method"], entry["run"], entry["n_labels"], task, 100.0 * accuracy)
        for entry in entries
        for task, accuracy in zip(entry["tasks"], entry["accuracies"], strict=True)
    ]
    return pd.DataFrame(rows, columns=SCORE)


def pack_draws(
    records: Iterable[dict[str, Any]], draws: Iterable[int], figures: Sequence[str]
) -> Results:
    """An entry for each set and N; of each method, by figure, a list over the draws, of 4 digits.

    Accuracies are in percent; null where a draw was not measured.
    """
    frame = pd.DataFrame(list(records), columns=["set", N, "draw", "method", *figures])
    frame["accuracy"] *= 100.0
    entries, draws = [], list(draws)
    for (name, n), cell in frame.groupby(["set", N], sort=False):
        methods = {}
        for method, group in cell.groupby("method", sort=False):
            by_draw = group.set_index("draw").reindex(draws)
            methods[method] = [
                [None if pd.isna(v) else float(f"{v:.4g}") for v in by_draw[figure]]
                for figure in figures
            ]
        entries.append({"set": name, N: int(n), "methods": methods})
    return {"figures": [*figures], "scores": entries}


def unpack_draws(results: Results) -> pd.DataFrame:
    """One row for each set, N, method and draw (0, 1, ... of those packed)."""
    rows = [
        (entry["set"], entry[N], method, draw, *values)
        for entry in results["scores"]
        for method, lists in entry["methods"].items()
        for draw, values in enumerate(zip(*lists, strict=True))
        if None not in values
    ]
    return pd.DataFrame(rows, columns=["set", N, "method", "draw", *results["figures"]])


# Parts


def merged(files: Sequence[Results]) -> Results:
    """One file of several of a run: a method has the scores and theta0s of the last that has it.

    ``parts`` keeps of each file all else: settings, versions, hardware and commits.
    """
    by_method: dict[str, dict[str, list[Any]]] = {"scores": {}, "theta0": {}}
    parts: list[Results] = []
    for results in files:
        for key, lists in by_method.items():
            own: dict[str, list[Any]] = {}
            for record in results.get(key, []):
                own.setdefault(record["method"], []).append(record)
            lists |= own
        about = {key: results[key] for key in OF_PART if key in results}
        parts += results.get("parts") or [about]
    whole = {key: value for key, value in files[0].items() if key not in OF_PART[1:]}
    whole["settings"] = files[0]["settings"] | {
        key: [*dict.fromkeys(name for part in parts for name in part["settings"].get(key) or [])]
        for key in ("methods", "rivals")
        if key in files[0]["settings"]
    }
    lists_of = {key: [*chain(*lists.values())] for key, lists in by_method.items()}
    return whole | {"parts": parts} | lists_of


OF_PART = ("settings", "versions", "hardware", "git_commit", "git_changed", "measured_at_commits")
