"""Claim: every table of figures in the README is a committed measurement, and nobody typed it.

The README, and ``benchmarks/results/README.md`` with the long tables, hold pairs of comments, and
this script writes what stands between them::

    <!-- table: mnist-full.json accuracy -->
    ...
    <!-- end of table -->

The first word names a file of ``benchmarks/results``, the second a table made of it, a key of
``reporting.tables.TABLES``; or one made of several files, a key of ``reporting.pages.DIGESTS``:
what agrees with the paper, the ranking of every method, the commands that wrote the files. Run it
after a new result (some seconds), and after ``report.py``::

    python benchmarks/readme_tables.py

``--check`` writes nothing and fails if a document is not what it would write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reporting.documents import RESULTS, write_documents
from reporting.layout import as_markdown
from reporting.pages import DIGESTS
from reporting.results import Library
from reporting.tables import build_table

DOCUMENTS = (RESULTS.parents[1] / "README.md", RESULTS / "README.md")
BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<file>\S+) (?P<kind>\S+) -->\n)(?P<body>.*?)"
    r"(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def _body(library: Library, file: str, kind: str) -> str:
    """What stands between a pair of comments."""
    folder = library.folder
    if not (folder / file).is_file():
        valid = sorted(path.name for path in folder.glob("*.json"))
        raise ValueError(f"no results {file!r}; {folder.name} has {valid}")
    if kind in DIGESTS:
        return as_markdown(DIGESTS[kind](library))
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


def _rewritten(folder: Path) -> dict[Path, str]:
    made = {}
    for path in DOCUMENTS:
        try:
            made[path] = rewrite(path.read_text(encoding="utf-8"), folder)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the documents are what the results say."""
    return write_documents(__doc__, argv, _rewritten)


if __name__ == "__main__":
    raise SystemExit(main())
