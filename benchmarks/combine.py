"""Claim: what is measured in parts is what would be measured at once.

Runs, methods and N of ``mnist_tasks.py`` follow from the seed, each on its own, so that several
machines or sessions can share a table. Parts are of one data set, one protocol and one length of
pre-training; this puts them together in some seconds::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

Each method, run and N may be in one part only. The same goes for settings and runs of
``coherence.py``, and for cells of ``degeneracies.py`` and ``scale_and_weight.py``. The file says
what each part was made with, and a picture of all it holds lies beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from protocol.store import write_json
from reporting.accuracy_figure import draw_accuracy
from reporting.coherence_figure import draw_results
from reporting.combined import combined
from reporting.combined_coherence import combined_coherence
from reporting.combined_study import combined_study, study_of
from reporting.degeneracy_figure import draw_densities
from reporting.scale_figure import draw_uniformity
from reporting.task_tables import unpack_scores

__all__ = ["main"]

Results = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """What a command writes: how it is known, put together, and drawn."""

    script: str
    holds: Callable[[Results], bool]
    combined: Callable[[Sequence[tuple[str, Results]]], Results]
    draw: Callable[[Results, Path], str]


def _draw_tasks(results: Results, path: Path) -> str:
    scores = unpack_scores(results["scores"])
    title = f"{results['dataset']['name']}, 95% intervals over runs and tasks"
    return draw_accuracy(scores, path, title=title)


def _study(script: str, draw: Callable[[Results, Path], str]) -> Kind:
    return Kind(script, lambda r: study_of(r) == script, partial(combined_study, script), draw)


KINDS = (
    Kind(
        "mnist_tasks.py",
        lambda r: {"settings", "theta0", "scores"} <= r.keys(),
        combined,
        _draw_tasks,
    ),
    Kind(
        "coherence.py",
        lambda r: {"plan", "theta0", "scores"} <= r.keys(),
        combined_coherence,
        draw_results,
    ),
    _study("degeneracies.py", draw_densities),
    _study("scale_and_weight.py", draw_uniformity),
)


def _read(paths: Sequence[Path]) -> tuple[Kind, list[tuple[str, Results]]]:
    """Of which kind the first file is, and what all hold; ValueError for one of another kind."""
    parts = []
    kinds: Sequence[Kind] = KINDS
    for path in paths:
        results = json.loads(path.read_text(encoding="utf-8"))
        own = [kind for kind in kinds if isinstance(results, dict) and kind.holds(results)]
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
        results = kind.combined(parts)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    print(kind.draw(results, options.output.with_suffix(".png")))
    print(f"{options.output} written, {len(options.parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
