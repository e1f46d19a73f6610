"""What the two commands that write documents share: their options, and how they write or check."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from protocol.store import write_atomically

RESULTS = Path(__file__).resolve().parents[1] / "results"


def document_parser(doc: str | None) -> argparse.ArgumentParser:
    """What both commands that write documents take."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder (default: benchmarks/results)"
    )
    return parser


def publish(documents: dict[Path, str], *, check: bool, by: str) -> int:
    """Write the documents that are not what they should be, or say which; the exit status."""
    changed = {
        path: text
        for path, text in documents.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    for path, text in changed.items():
        if check:
            said = f"{path} differs from what its results say; run python benchmarks/{by}"
            print(said, file=sys.stderr)
        else:
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            print(f"{path} written")
    return int(check and bool(changed))
