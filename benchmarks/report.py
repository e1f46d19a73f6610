"""Claim: every table of the report and of the README is of committed measurements.

The pages of the report, of ``docs/guide`` and the README hold pairs of comments, and what stands
between them is written here::

    <!-- table: mnist-full.json accuracy -->
    ...
    <!-- end of table -->

The first word names a file of ``benchmarks/results``, the second a table made of it, a key of
``reporting.tables.TABLES``. ``REPORT.md`` in place of a file names a table made of several files, a
key of ``reporting.pages.DIGESTS``. The report's appendices (``APPENDICES`` of ``runs.py``) are
written whole, and the README's picture is drawn again. Run it after a new result (some seconds)::

    python benchmarks/report.py

``--check`` writes nothing and fails if a page is not what it would write. ``--merge`` first puts
rows that were measured again into a file; of a row the last file has all scores::

    python benchmarks/report.py --merge mnist-rows.json benchmarks/output/mnist_tasks-0123abcd.json
"""

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from protocol.command import command_parser
from protocol.store import write_atomically, write_json
from reporting.headline import PICTURE, draw_headline, headline_digest
from reporting.layout import as_markdown
from reporting.pages import DIGESTS, appendix
from reporting.results import Library, merged
from reporting.tables import build_table
from runs import APPENDICES

RESULTS = Path(__file__).resolve().parent / "results"
ROOT = RESULTS.parents[1]
DOCUMENTS = (
    ROOT / "README.md",
    *sorted(RESULTS.glob("*.md")),
    *(path for path in sorted(RESULTS.glob("report/*.md")) if path.stem not in APPENDICES),
    *sorted(ROOT.glob("docs/guide/*.md")),
)
OF_SEVERAL = "REPORT.md"
BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<file>\S+) (?P<kind>\S+) -->\n)(?P<body>.*?)"
    r"(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def rewrite(text: str, library: Library) -> str:
    """The text of a document with each table between its comments made anew."""

    def replace(match: re.Match[str]) -> str:
        file, kind = match["file"], match["kind"]
        if file == OF_SEVERAL and kind in DIGESTS:
            table = DIGESTS[kind](library)
        else:
            table = build_table(kind, library.results(file))
        return f"{match['head']}\n{as_markdown(table)}\n\n{match['tail']}"

    begun, ended = text.count("<!-- table:"), text.count("<!-- end of table -->")
    if begun != ended or begun != len(BLOCK.findall(text)):
        raise ValueError(
            f"{begun} tables begin and {ended} end; a table is written as "
            "<!-- table: FILE KIND --> ... <!-- end of table -->"
        )
    return BLOCK.sub(replace, text)


def pages_of(library: Library) -> dict[Path, str]:
    made = {
        library.folder / "report" / f"{name}.md": appendix(library, page)
        for name, page in APPENDICES.items()
    }
    for path in DOCUMENTS:
        try:
            made[path] = rewrite(path.read_text(encoding="utf-8"), library)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return made


def merge_into(folder: Path, file: str, *others: str) -> None:
    """Put the rows of other files into a file of results."""
    files = [Library(folder).results(file), *(Library(Path()).results(each) for each in others)]
    write_json(folder / file, merged(files))


def picture_is_stale(library: Library) -> bool:
    """Whether the README's picture is to be drawn: it is missing, or of other figures."""
    path = library.folder / PICTURE
    # Bytes differ from one matplotlib to the next; the digest of the figures does not.
    return not path.is_file() or headline_digest(library).encode() not in path.read_bytes()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the pages are what the results say."""
    parser = command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--check", action="store_true", help="write nothing, fail on a difference")
    add("--results", type=Path, default=RESULTS, help="folder (default: benchmarks/results)")
    merge = "put rows that were measured again, in files anywhere, into a file of the folder"
    add("--merge", nargs="+", metavar=("FILE", "NEW"), help=merge)
    options = parser.parse_args(argv)
    try:
        if options.merge:
            merge_into(options.results, *options.merge)
        # All of them before anything is written: they agree with each other or stay as they are.
        library = Library(options.results)
        made = pages_of(library)
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    changed = [p for p in made if not p.is_file() or p.read_text(encoding="utf-8") != made[p]]
    if picture_is_stale(library):
        changed.append(library.folder / PICTURE)
    for path in changed:
        if options.check:
            line = f"{path} differs from what its results say; run python benchmarks/{parser.prog}"
            print(line, file=sys.stderr)
        elif path in made:
            write_atomically(path, partial(Path.write_text, data=made[path], encoding="utf-8"))
            print(f"{path} written")
        else:
            print(draw_headline(library, path))
    return int(options.check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
