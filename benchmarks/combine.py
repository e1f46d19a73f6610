"""Claim: what is measured in parts is what would be measured at once.

Runs, methods and N of ``mnist_tasks.py`` follow from the seed, each on its own, so that several
machines or sessions can share a table. Parts are of one data set, one protocol and one length of
pre-training; this puts them together in some seconds::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

Each method, run and N may be in one part only. The same goes for settings and runs of
``coherence.py``. The file says what each part was made with, and a picture of all scores lies
beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.store import write_json
from reporting.accuracy_figure import draw_accuracy
from reporting.coherence_figure import draw_results
from reporting.combined import combined
from reporting.combined_coherence import combined_coherence
from reporting.task_tables import unpack_scores

__all__ = ["main"]


def _is_of(script: str, results: Any) -> bool:
    asked = {"mnist_tasks.py": "settings", "coherence.py": "plan"}[script]
    return isinstance(results, dict) and {"scores", asked, "theta0"} <= results.keys()


def _read(paths: Sequence[Path]) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """The script that wrote the first of the files, and what all hold; ValueError for another."""
    parts = [(str(path), json.loads(path.read_text(encoding="utf-8"))) for path in paths]
    script = "coherence.py" if _is_of("coherence.py", parts[0][1]) else "mnist_tasks.py"
    for name, results in parts:
        if not _is_of(script, results):
            raise ValueError(f"{name} holds no results of {script}")
    return script, parts


def _draw(script: str, results: dict[str, Any], path: Path) -> str:
    name = results["dataset"]["name"]
    if script == "coherence.py":
        return draw_results(results, path)
    scores = unpack_scores(results["scores"])
    return draw_accuracy(scores, path, title=f"{name}, 95% intervals over runs and tasks")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the file was written, 2 if the parts are not valid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", type=Path, help="files of results")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    try:
        script, parts = _read(options.parts)
        results = combined_coherence(parts) if script == "coherence.py" else combined(parts)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    print(_draw(script, results, options.output.with_suffix(".png")))
    print(f"{options.output} written, {len(options.parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
