"""Claim: every table of figures in the README is a committed measurement, and nobody typed it.

The README, and ``benchmarks/results/README.md`` with the long tables, hold pairs of comments, and
this script writes what stands between them::

    <!-- table: mnist-full.json accuracy -->
    ...
    <!-- end of table -->

The first word names a file of ``benchmarks/results``, the second a table made of it, a key of
``reporting.tables.TABLES``; or one made of several files, a key of ``DIGESTS``: five lines of
``REPORT.md``, the ranking of every method, the commands that wrote the files. Run it after a new
result (some seconds), and after ``report.py``::

    python benchmarks/readme_tables.py

``--check`` writes nothing and fails if a document is not what it would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from reporting.documents import RESULTS, document_parser, publish
from reporting.pages import commands, ranking, summary
from reporting.results import Library
from reporting.tables import TABLES, as_markdown, build_table

__all__ = ["DIGESTS", "DOCUMENTS", "RESULTS", "main", "rewrite", "tables_in"]

DOCUMENTS = (RESULTS.parents[1] / "README.md", RESULTS / "README.md")
BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<file>\S+) (?P<kind>\S+) -->\n)(?P<body>.*?)"
    r"(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


DIGESTS: dict[str, Callable[[Library], str]] = {
    "report_summary": lambda library: "\n".join(f"- {line}" for line in summary(library)),
    "ranking": ranking,
    "commands": commands,
}
"""From all results to Markdown made of several of them, by kind."""


def tables_in(text: str) -> list[tuple[str, str]]:
    """File of results and kind of each table that a document holds, in order."""
    return [(match["file"], match["kind"]) for match in BLOCK.finditer(text)]


def _body(library: Library, file: str, kind: str) -> str:
    """What stands between a pair of comments."""
    folder = library.folder
    if not (folder / file).is_file():
        valid = sorted(path.name for path in folder.glob("*.json"))
        raise ValueError(f"no results {file!r}; {folder.name} has {valid}")
    if kind in DIGESTS:
        return DIGESTS[kind](library)
    if kind not in TABLES:
        valid = sorted(TABLES.keys() | DIGESTS.keys())
        raise ValueError(f"unknown table {kind!r}; valid names are {valid}")
    return as_markdown(build_table(kind, library.results(file) or {}))


def rewrite(text: str, folder: Path) -> str:
    """The text of a Markdown document with each table between its comments made anew.

    Raises
    ------
    ValueError
        If a comment names a file or a table that does not exist, or a table is never ended.
    """

    def replace(match: re.Match[str]) -> str:
        body = _body(Library(folder), match["file"], match["kind"])
        return f"{match['head']}\n{body}\n\n{match['tail']}"

    begun, ended = text.count("<!-- table:"), text.count("<!-- end of table -->")
    if begun != ended or begun != len(BLOCK.findall(text)):
        raise ValueError(
            f"{begun} tables begin and {ended} end; a table is written as "
            "<!-- table: FILE KIND --> ... <!-- end of table -->"
        )
    return BLOCK.sub(replace, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the documents are what the results say."""
    parser = document_parser(__doc__)
    parser.add_argument(
        "--documents", nargs="+", type=Path, default=DOCUMENTS, metavar="PATH",
        help="Markdown files (default: README.md and benchmarks/results/README.md)",
    )  # fmt: skip
    options = parser.parse_args(argv)
    made: dict[Path, str] = {}
    for path in options.documents:
        try:
            made[path] = rewrite(path.read_text(encoding="utf-8"), options.results)
        except ValueError as error:
            # Before anything is written: the documents agree with each other or stay as they are.
            print(f"{path}: {error}", file=sys.stderr)
            return 2
    return publish(made, check=options.check, by="readme_tables.py")


if __name__ == "__main__":
    raise SystemExit(main())
