"""Claim: what is measured in parts is what would be measured at once.

Runs, methods and N of ``mnist_tasks.py`` follow from the seed, each on its own, so that several
machines or sessions can share a table. Parts are of one data set, one protocol and one length of
pre-training; this puts them together in some seconds::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

Each method, run and N may be in one part only, or in several with the same figures. The same goes
for settings and runs of ``coherence.py``, and for cells of ``scale_and_weight.py``. The file says
what each part was made with, and a picture of all it holds lies beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from protocol.command import command_parser
from protocol.methods import CONVNET_NAMES, NAMES
from protocol.rivals import ALL_RIVALS
from protocol.store import write_json
from reporting.pictures import draw_accuracy, draw_coherence
from reporting.results import Results
from reporting.task_tables import SCRATCH

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
# What says nothing of a figure, and was not always there.
IDLE = {"device", "preset", "precision", "jacobian_at", "coherent_passes"}

TIMES = {"seconds", "cpu_seconds", "theta0"}

MADE_WITH = (
    *("seconds_of_this_call", "versions", "hardware", "git_commit", "git_changed"),
    *("measured_at_commits", "measured_on"),
)


class PartsDifferError(ValueError):
    """Results that are not parts of one measurement."""


@dataclass(frozen=True)
class Kind:
    """What a command writes.

    ``settings`` is the key of what was asked for, and ``own`` what of it a part may have of its
    own; ``keys``: by the key of a list, what tells its entries apart; ``names``: from the settings
    to the rows in the order of the tables.
    """

    script: str
    settings: str
    own: tuple[str, ...]
    keys: dict[str, tuple[str, ...]]
    draw: Callable[[Results, Path], str] | None = None
    names: Callable[[dict[str, Any]], Sequence[str]] = lambda settings: ()

    def holds(self, results: Any) -> bool:
        """Whether results are of this command."""
        if not {self.settings, *self.keys} <= results.keys():
            return False
        return self.own[0] in results[self.settings]


CELL = ("method", "run", "n_labels")
RUNS = ("runs", "first_run")

KINDS = (
    Kind(
        "mnist_tasks.py",
        "settings",
        ("methods", "n_labels", "rivals", *RUNS),
        {"scores": CELL, "theta0": ("method", "run")},
        draw_accuracy,
        lambda settings: (*NAMES, *CONVNET_NAMES, *ALL_RIVALS),
    ),
    Kind(
        "coherence.py",
        "plan",
        ("settings", *RUNS),
        {"scores": CELL, "theta0": ("section", "name", "passes", "run")},
        draw_coherence,
        lambda plan: [SCRATCH, *map(_name, plan["settings"])],
    ),
    Kind(
        "scale_and_weight.py",
        "settings",
        ("weights", "squared_scales", *RUNS),
        {"records": ("run", "squared_scale", "degeneracy_weight")},
    ),
)


def _common(kind: Kind, part: Results) -> dict[str, Any]:
    """What all parts have to share."""
    settings = BEFORE | part[kind.settings]
    own = {k: v for k, v in settings.items() if k not in IDLE.union(kind.own)}
    return {"dataset": part["dataset"]["name"]} | own


def _union(lists: Iterable[list[Any]]) -> list[Any]:
    """Values in the order in which they first come, numbers in their own."""
    values: list[Any] = []
    for one in lists:
        values += [value for value in one if value not in values]
    numbers = all(isinstance(value, int | float) for value in values)
    return sorted(values) if numbers else values


def _name(entry: dict[str, Any]) -> str:
    """The row of an entry; theta0 of ``coherence.py`` is called as its scores are."""
    return entry.get("method") or "{section}/{name}@{passes}".format(**entry)


def _place(by: tuple[str, ...], names: Sequence[str], entry: dict[str, Any]) -> list[float]:
    """Where an entry stands: by row, N and run, or by its own numbers."""
    if names:
        return [names.index(_name(entry)), entry.get("n_labels", 0), entry["run"]]
    return [entry[field] for field in by]


def _entries(
    parts: Sequence[tuple[str, Results]], key: str, by: tuple[str, ...]
) -> list[dict[str, Any]]:
    """The entries of all parts; what several have must be the same, but for the time it took."""
    found: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
    for name, part in parts:
        for entry in part[key]:
            cell = tuple(entry[field] for field in by)
            first, before = found.setdefault(cell, (name, entry))
            if any(before.get(k) != entry.get(k) for k in (before | entry).keys() - TIMES):
                words = ", ".join(f"{f}={v}" for f, v in zip(by, cell, strict=True))
                raise PartsDifferError(f"{first} and {name} both have {words}, and not the same")
    return [entry for _, entry in found.values()]


def _made_with(kind: Kind, part: Results) -> dict[str, Any]:
    """What a report says of a part."""
    learned = part.get("theta0") or [r["theta0"] for r in part.get("records", []) if "theta0" in r]
    made = {key: part.get(key) for key in (kind.settings, *MADE_WITH)}
    return made | {"theta0": [{"seconds": theta0["seconds"]} for theta0 in learned]}


def combined(kind: Kind, parts: Sequence[tuple[str, Results]]) -> Results:
    """One file of results from several, in an order that is not that of the parts.

    Under "parts" it says what each of them was made with. A PartsDifferError where they are of
    other data, tasks or settings, or differ in an entry that several have.
    """
    first = parts[0][1]
    common = _common(kind, first)
    for name, part in parts[1:]:
        other = _common(kind, part)
        for key in sorted(common.keys() | other.keys()):
            if common.get(key) != other.get(key):
                raise PartsDifferError(
                    f"{name} has {key}={other.get(key)!r}, and not {common.get(key)!r}"
                )
    given = [part[kind.settings] for _, part in parts]
    settings = {key: value for key, value in first[kind.settings].items() if key not in IDLE}
    for key in kind.own:
        if lists := [own[key] for own in given if isinstance(own.get(key), list)]:
            settings[key] = _union(lists)
    names = kind.names(settings)
    entries = {
        key: sorted(_entries(parts, key, by), key=partial(_place, by, names))
        for key, by in kind.keys.items()
    }
    runs = {entry["run"] for found in entries.values() for entry in found if "run" in entry}
    settings |= {"runs": len(runs), "first_run": min(runs)} if runs else {}
    made = [p for _, part in parts for p in part.get("parts") or [_made_with(kind, part)]]
    head = {"claim": first.get("claim"), "dataset": first["dataset"], kind.settings: settings}
    return head | {"parts": made} | entries


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the file was written, 2 if the parts are not valid."""
    parser = command_parser(__doc__)
    parser.add_argument("parts", nargs="+", type=Path, help="files of results")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    try:
        parts = [(str(p), json.loads(p.read_text(encoding="utf-8"))) for p in options.parts]
        kinds = [kind for kind in KINDS if all(kind.holds(results) for _, results in parts)]
        if not kinds:
            scripts = ", ".join(kind.script for kind in KINDS)
            raise ValueError(f"{', '.join(dict(parts))} are no parts of one of {scripts}")
        results = combined(kinds[0], parts)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    if kinds[0].draw is not None:
        print(kinds[0].draw(results, options.output.with_suffix(".png")))
    print(f"{options.output} written from {len(parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
