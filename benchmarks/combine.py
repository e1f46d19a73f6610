"""Claim: what ``mnist_tasks.py`` measures in parts is what it measures at once.

Runs, methods and N follow from the seed, each on its own, so that several machines or sessions can
share a table. Parts are of one data set, one protocol and one length of pre-training; this puts
them together in some seconds::

    python benchmarks/combine.py xavier.json he.json --output mnist-full.json

Each method, run and N may be in one part only. The file says what each part was made with, and a
picture of all scores lies beside it.
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
from reporting.combined import combined
from reporting.task_tables import unpack_scores

__all__ = ["main"]


def _read(path: Path) -> dict[str, Any]:
    results = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(results, dict) or not {"scores", "settings", "theta0"} <= results.keys():
        raise ValueError(f"{path} holds no results of mnist_tasks.py")
    return results


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the file was written, 2 if the parts are not valid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="+", type=Path, help="files of results")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    options = parser.parse_args(argv)
    try:
        results = combined([(str(path), _read(path)) for path in options.parts])
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    write_json(options.output, results)
    scores = unpack_scores(results["scores"])
    title = f"{results['dataset']['name']}, 95% intervals over runs and tasks"
    print(draw_accuracy(scores, options.output.with_suffix(".png"), title=title))
    print(f"{options.output} written, {len(options.parts)} parts")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
