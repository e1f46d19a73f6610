"""Claim: one page says what of the paper is reproduced, and nobody typed a figure of it.

``benchmarks/results/REPORT.md`` has each table of the paper beside ours, each figure, whether they
agree within the paper's own spread, and which of its orderings hold; then the rivals, what
coherence adds, accuracy against time, and what each file was made with. What is not measured yet
stands there with the command that measures it. All of it comes from the JSON in
``benchmarks/results``, short notes by people in its folder ``notes`` apart. Run it after a new
result (some seconds)::

    python benchmarks/report.py

``--check`` writes nothing and fails if the page is not what it would write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from protocol.store import write_atomically
from reporting import pages
from reporting.results import Library

__all__ = ["main"]

RESULTS = Path(__file__).resolve().parent / "results"
NAME = "REPORT.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the page is what the results say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder (default: benchmarks/results)"
    )
    options = parser.parse_args(argv)
    path = options.results / NAME
    try:
        text = pages.report(Library(options.results))
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    old = path.read_text(encoding="utf-8") if path.is_file() else None
    if options.check:
        if old != text:
            print(
                f"{path} differs from what its results say; run python benchmarks/report.py",
                file=sys.stderr,
            )
        return int(old != text)
    if old != text:
        write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
        print(f"{path} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
