"""Claim: one page says what of the paper is reproduced, and nobody typed a figure of it.

``benchmarks/results/REPORT.md`` has each table of the paper beside ours, and whether figures agree
within the paper's own spread; then the rivals, what coherence adds, accuracy against time, and what
each file was made with. What is not measured yet stands there with the command that measures it.
All of it comes from the JSON in ``benchmarks/results``, short notes by people in its folder
``notes`` apart. Run it after a new result (some seconds)::

    python benchmarks/report.py

``--check`` writes nothing and fails if the page is not what it would write.
"""

from __future__ import annotations

from collections.abc import Sequence

from reporting.documents import write_documents
from reporting.pages import report
from reporting.results import Library


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the page is what the results say."""
    return write_documents(
        __doc__, argv, lambda folder: {folder / "REPORT.md": report(Library(folder))}
    )


if __name__ == "__main__":
    raise SystemExit(main())
