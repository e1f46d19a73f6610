"""Claim: every table of figures in the README is a committed measurement, and nobody typed it.

The README, and ``benchmarks/results/README.md`` with the long tables, hold pairs of comments, and
this script writes what stands between them::

    <!-- table: mnist-full.json accuracy -->
    ...
    <!-- end of table -->

The first word names a file of ``benchmarks/results``, the second a table made of it:
``accuracy``, ``task_std``, ``gain`` or ``against`` of what ``mnist_tasks.py`` wrote, ``budget``
of what ``budget.py`` did, ``diagnostics`` of what ``diagnostics.py`` did; ``step``,
``breakdown``, ``memory``, ``scaling``, ``rows``, ``fine_tuning``, ``cross_validation``,
``modules`` or ``module_memory`` of what ``speed.py`` did; ``coherence_time`` or
``coherence_ablation`` of what ``coherence.py`` did;
``degenerate_softmax`` or ``dead_neurons`` of what ``degeneracies.py`` did, ``scale_and_weight``
and ``theorems`` of what the commands of these names did. ``report_summary`` is no table but five
lines of ``REPORT.md``, made of all results there are, ``ranking`` a table of every method in them,
and ``precision`` one of the short runs with and without rounded products. Run it after a new
result (some seconds), and after ``report.py``::

    python benchmarks/readme_tables.py

``--check`` writes nothing and fails if a document is not what it would write.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from protocol.store import write_atomically
from reporting.against_table import against, against_table
from reporting.backends_table import backends_table
from reporting.budget_tables import budget_table, points_of_results
from reporting.coherence_tables import COHERENCE_TABLES
from reporting.coherence_tables import points_of_results as coherence_results
from reporting.degeneracy_tables import DEGENERACY_TABLES
from reporting.diagnostics_tables import diagnostics_table
from reporting.library import Library
from reporting.paper import tasks_compare_with_paper
from reporting.precision_table import precision_table
from reporting.rivals_report import ranking_table, scores_by_row
from reporting.scale_tables import scale_and_weight_table
from reporting.speed_tables import SPEED_TABLES, build_speed_table
from reporting.summary import summary_lines
from reporting.table import Table, as_markdown
from reporting.task_tables import CELLS, build_table, summarize, unpack_scores
from reporting.theorem_tables import theorems_table

__all__ = ["DIGESTS", "DOCUMENTS", "TABLES", "main", "rewrite", "tables_in"]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENTS = (ROOT / "README.md", RESULTS / "README.md")
BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<file>\S+) (?P<kind>\S+) -->\n)(?P<body>.*?)"
    r"(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def _task_table(kind: str, results: dict[str, Any]) -> Table:
    summaries = summarize(unpack_scores(results["scores"]))
    return build_table(kind, summaries, paper=tasks_compare_with_paper(results))


def _against_table(results: dict[str, Any]) -> Table:
    return against_table(against(unpack_scores(results["scores"])))


def _budget_table(results: dict[str, Any]) -> Table:
    return budget_table(points_of_results(results))


def _coherence_table(kind: str, results: dict[str, Any]) -> Table:
    return COHERENCE_TABLES[kind](coherence_results(results))


TABLES: dict[str, Callable[[dict[str, Any]], Table]] = {
    **{kind: partial(_task_table, kind) for kind in CELLS},
    "against": _against_table,
    "backends": backends_table,
    "budget": _budget_table,
    **{kind: partial(_coherence_table, kind) for kind in COHERENCE_TABLES},
    "diagnostics": diagnostics_table,
    **DEGENERACY_TABLES,
    "scale_and_weight": scale_and_weight_table,
    "theorems": theorems_table,
    **{kind: partial(build_speed_table, kind) for kind in SPEED_TABLES},
}
"""From a file of results to a table of it, by kind."""


def _report_summary(folder: Path) -> str:
    return "\n".join(f"- {line}" for line in summary_lines(Library(folder)))


def _ranking(folder: Path) -> str:
    return as_markdown(ranking_table(scores_by_row(Library(folder))))


def _precision(folder: Path) -> str:
    return as_markdown(precision_table(Library(folder)))


DIGESTS: dict[str, Callable[[Path], str]] = {
    "report_summary": _report_summary,
    "ranking": _ranking,
    "precision": _precision,
}
"""From the folder of results to Markdown made of several of its files, by kind."""


def tables_in(text: str) -> list[tuple[str, str]]:
    """File of results and kind of each table that a document holds, in order."""
    return [(match["file"], match["kind"]) for match in BLOCK.finditer(text)]


def _body(folder: Path, file: str, kind: str) -> str:
    """What stands between a pair of comments."""
    path = folder / file
    if not path.is_file():
        valid = sorted(p.name for p in folder.glob("*.json"))
        raise ValueError(f"no results {file!r}; {folder.name} has {valid}")
    if kind in DIGESTS:
        return DIGESTS[kind](folder)
    if kind not in TABLES:
        valid = sorted(TABLES.keys() | DIGESTS.keys())
        raise ValueError(f"unknown table {kind!r}; valid names are {valid}")
    return as_markdown(TABLES[kind](json.loads(path.read_text(encoding="utf-8"))))


def rewrite(text: str, folder: Path) -> str:
    """The text with each table between its comments made anew.

    Parameters
    ----------
    text : str
        A Markdown document.
    folder : Path
        Where the files of results are.

    Raises
    ------
    ValueError
        If a comment names a file or a table that does not exist, or a table is never ended.
    """

    def replace(match: re.Match[str]) -> str:
        body = _body(folder, match["file"], match["kind"])
        return f"{match['head']}\n{body}\n\n{match['tail']}"

    begun, ended = text.count("<!-- table:"), text.count("<!-- end of table -->")
    if begun != ended or begun != len(BLOCK.findall(text)):
        raise ValueError(
            f"{begun} tables begin and {ended} end; a table is written as "
            "<!-- table: FILE KIND --> ... <!-- end of table -->"
        )
    return BLOCK.sub(replace, text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument(
        "--documents", nargs="+", type=Path, default=DOCUMENTS, metavar="PATH",
        help="Markdown files (default: README.md and benchmarks/results/README.md)",
    )  # fmt: skip
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder (default: benchmarks/results)"
    )
    options = parser.parse_args(argv)
    changed: dict[Path, str] = {}
    for path in options.documents:
        old = path.read_text(encoding="utf-8")
        try:
            new = rewrite(old, options.results)
        except ValueError as error:
            # Before anything is written: the documents agree with each other or stay as they are.
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        if new != old:
            changed[path] = new
    if options.check:
        for path in changed:
            print(
                f"{path} differs from what its results say; run python benchmarks/readme_tables.py",
                file=sys.stderr,
            )
        return 1 if changed else 0
    for path, text in changed.items():
        write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
