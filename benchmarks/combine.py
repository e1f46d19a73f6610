"""Claim: what is measured in parts is what would be measured at once.

Runs, methods and N of ``mnist_tasks.py`` follow from the seed, each on its own, so that several
machines or sessions can share a table; so do settings and runs of ``coherence.py``, and cells of
``scale_and_weight.py``. This puts parts together in some seconds, of one data set, one protocol and
one length of pre-training; where several have the same cell, its figures must be the same::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

The file says what each part was made with, and a picture of all it holds lies beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.command import command_parser
from protocol.methods import CONVNET_NAMES, NAMES
from protocol.rivals import ALL_RIVALS
from protocol.store import write_json
from reporting.pictures import draw_accuracy, draw_coherence
from reporting.results import Results

# What only one command asks for, and its picture.
DRAWN = {"methods": draw_accuracy, "settings": draw_coherence, "weights": None}

# Settings that came later, and what has been before; those that say nothing of a figure and were
# not always there; and those that a part has of its own.
BEFORE = {"classes": 2, "draw": "uniform", "network": "mlp", "augmentation": "none"}
BEFORE |= {"neighbors": "pixels", "separation": 2.0, "rounds": 1, "kernels": "sum"}
BEFORE |= {"same_tasks": False}
IDLE = {"device", "preset", "precision", "jacobian_at", "coherent_passes"}
LISTS = ("methods", "n_labels", "rivals", "settings", "weights", "squared_scales")
OWN = {*LISTS, "runs", "first_run"}

# Of an entry: what two measurements of it need not share.
TIMES = {"seconds", "cpu_seconds", "theta0"}

MADE_WITH = (
    *("seconds_of_this_call", "versions", "hardware", "git_commit", "git_changed"),
    *("measured_at_commits", "measured_on"),
)


class PartsDifferError(ValueError):
    """Results that are not parts of one measurement."""


def _asked(part: Results) -> str:
    return "plan" if "plan" in part else "settings"


def _common(part: Results) -> dict[str, Any]:
    """What all parts have to share."""
    settings = BEFORE | part.get(_asked(part), {})
    own = {key: value for key, value in settings.items() if key not in IDLE | OWN}
    kinds = [key for key in DRAWN if key in settings]
    return {"what": "".join(kinds), "dataset": part.get("dataset", {}).get("name")} | own


def _name(entry: dict[str, Any]) -> str:
    """The row of an entry; theta0 of ``coherence.py`` is called as its scores are."""
    return entry.get("method") or "{section}/{name}@{passes}".format(**entry)


def _cell(entry: dict[str, Any]) -> dict[str, Any]:
    """What tells an entry from the others of its list."""
    if "squared_scale" in entry:
        return {field: entry[field] for field in ("run", "squared_scale", "degeneracy_weight")}
    return {"method": _name(entry), "N": entry.get("n_labels", 0), "run": entry["run"]}


def _entries(parts: dict[str, Results], key: str) -> list[dict[str, Any]]:
    """The entries of all parts, each once."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, part in parts.items():
        for entry in part[key]:
            cell = ", ".join(f"{field}={value}" for field, value in _cell(entry).items())
            first, before = found.setdefault(cell, (name, entry))
            if any(before.get(k) != entry.get(k) for k in (before | entry).keys() - TIMES):
                raise PartsDifferError(f"{first} and {name} both have {cell}, and not the same")
    return [entry for _, entry in found.values()]


def _made_with(part: Results) -> dict[str, Any]:
    """What a report says of a part."""
    learned = part.get("theta0") or [record["theta0"] for record in part.get("records", ())]
    made = {key: part.get(key) for key in (_asked(part), *MADE_WITH)}
    return made | {"theta0": [{"seconds": theta0["seconds"]} for theta0 in learned]}


def combined(parts: dict[str, Results]) -> Results:
    """One file of results from several by name, in an order that is not that of the parts.

    Under "parts" it says what each of them was made with. A PartsDifferError where they are of
    other commands, data, tasks or settings, or differ in an entry that several have.
    """
    first = next(iter(parts.values()))
    common = _common(first)
    if not common["what"]:
        raise PartsDifferError(f"{next(iter(parts))} is of no command whose parts are known")
    for name, part in parts.items():
        other = _common(part)
        for key in sorted(common.keys() | other.keys()):
            if common.get(key) != other.get(key):
                raise PartsDifferError(
                    f"{name} has {key}={other.get(key)!r}, and not {common.get(key)!r}"
                )
    asked = _asked(first)
    settings = {key: value for key, value in first[asked].items() if key not in IDLE}
    for key in LISTS:
        values = [value for part in parts.values() for value in part[asked].get(key) or ()]
        distinct = [value for place, value in enumerate(values) if value not in values[:place]]
        if values:
            settings[key] = distinct if isinstance(values[0], str | dict) else sorted(distinct)
    rows = [*NAMES, *CONVNET_NAMES, *ALL_RIVALS, *map(_name, settings.get("settings", ()))]

    def place(entry: dict[str, Any]) -> list[float]:
        first, *others = _cell(entry).values()
        return [rows.index(first) if isinstance(first, str) else first, *others]

    keys = [key for key in ("scores", "theta0", "records") if key in first]
    entries = {key: sorted(_entries(parts, key), key=place) for key in keys}
    runs = {entry["run"] for found in entries.values() for entry in found}
    settings |= {"runs": len(runs), "first_run": min(runs)} if runs else {}
    made = [p for part in parts.values() for p in part.get("parts") or [_made_with(part)]]
    head = {"claim": first.get("claim"), "dataset": first["dataset"], asked: settings}
    return head | {"parts": made} | entries


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the file was written, 2 if the parts are not valid."""
    parser = command_parser(__doc__)
    parser.add_argument("parts", nargs="+", type=Path, help="files of results")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    try:
        results = combined({str(p): json.loads(p.read_text("utf-8")) for p in options.parts})
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    draw = DRAWN[_common(results)["what"]]
    if draw is not None:
        print(draw(results, options.output.with_suffix(".png")))
    print(f"{options.output} written from {len(options.parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
