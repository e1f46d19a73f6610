"""Claim: what is measured in parts is what would be measured at once.

Runs, methods and N of ``mnist_tasks.py`` follow from the seed, each on its own, so that several
machines or sessions can share a table. Parts are of one data set, one protocol and one length of
pre-training; this puts them together in some seconds::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

Each method, run and N may be in one part only, or in several with the same figures. The same goes
for settings and runs of ``coherence.py``, and for cells of ``degeneracies.py`` and
``scale_and_weight.py``. The file says what each part was made with, and beside it lies a picture
where its command draws one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from protocol.methods import NAMES
from protocol.rivals import ALL_RIVALS
from protocol.store import write_json
from reporting.pictures import draw_accuracy, draw_coherence
from reporting.results import Results
from reporting.task_tables import SCRATCH
from runs import CONVNET

__all__ = ["PartsDifferError", "combined", "main"]

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

MADE_WITH = ("seconds_of_this_call", "versions", "hardware", "git_commit", "git_changed",
             "measured_at_commits", "measured_on")  # fmt: skip


# What not every part says of itself.
MAY_LACK = {"runs", "first_run", "rivals"}


class PartsDifferError(ValueError):
    """Results that are not parts of one measurement."""


@dataclass(frozen=True)
class Kind:
    """What a command writes."""

    script: str
    # The key of what was asked for, and what of it a part may have of its own; a list has all.
    settings: str
    own: tuple[str, ...]
    # By the key of a list, what tells its entries apart.
    keys: dict[str, tuple[str, ...]]
    draw: Callable[[Results, Path], str] | None = None
    # From the settings to the rows in the order of the tables.
    names: Callable[[dict[str, Any]], Sequence[str]] = lambda settings: ()

    def holds(self, results: Any) -> bool:
        """Whether results are of this command."""
        if not isinstance(results, dict) or not {self.settings, *self.keys} <= results.keys():
            return False
        return set(self.own) - MAY_LACK <= results[self.settings].keys()


CELL = ("method", "run", "n_labels")


def _coherence_names(plan: dict[str, Any]) -> list[str]:
    return [SCRATCH, *map(_name, plan["settings"])]


KINDS = (
    Kind(
        "mnist_tasks.py",
        "settings",
        ("methods", "n_labels", "runs", "first_run", "rivals"),
        {"scores": CELL, "theta0": ("method", "run")},
        draw_accuracy,
        lambda settings: (*NAMES, *CONVNET, *ALL_RIVALS),
    ),
    Kind(
        "coherence.py",
        "plan",
        ("settings", "runs", "first_run"),
        {"scores": CELL, "theta0": ("section", "name", "passes", "run")},
        draw_coherence,
        _coherence_names,
    ),
    Kind(
        "degeneracies.py",
        "settings",
        ("shown",),
        {"records": ("degeneracy_weight", "detachment_weight")},
    ),
    Kind(
        "scale_and_weight.py",
        "settings",
        ("squared_scales", "weights", "runs", "first_run"),
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
    """Where an entry stands: by row, N and run, or by its own numbers, the fresh weights first."""
    if names:
        return [names.index(_name(entry)), entry.get("n_labels", 0), entry["run"]]
    return [-1.0 if entry[field] is None else entry[field] for field in by]


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

    Under "parts" it says what each of them was made with.

    Raises
    ------
    PartsDifferError
        If they are of other data, tasks or settings, or differ in an entry that several have.
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
        lists = [own[key] for own in given if isinstance(own.get(key), list)]
        if lists:
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


def _read(paths: Sequence[Path]) -> tuple[Kind, list[tuple[str, Results]]]:
    """Of which kind the files are, and what they hold; ValueError where they are of none."""
    kinds: Sequence[Kind] = KINDS
    parts = []
    for path in paths:
        results = json.loads(path.read_text(encoding="utf-8"))
        own = [kind for kind in kinds if kind.holds(results)]
        if not own:
            scripts = ", ".join(kind.script for kind in kinds)
            raise ValueError(f"{path} holds no results of {scripts}")
        kinds = own
        parts.append((str(path), results))
    return kinds[0], parts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the file was written, 2 if the parts are not valid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", type=Path, help="files of results")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    try:
        kind, parts = _read(options.parts)
        results = combined(kind, parts)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    if kind.draw is not None:
        print(kind.draw(results, options.output.with_suffix(".png")))
    print(f"{options.output} written from {len(parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
