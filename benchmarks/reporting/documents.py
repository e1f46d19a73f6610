"""What the commands that write documents do: they write them, or check what stands there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from protocol.store import write_atomically

RESULTS = Path(__file__).resolve().parents[1] / "results"


def write_documents(
    doc: str | None,
    argv: Sequence[str] | None,
    make: Callable[[Path], dict[Path, str]],
) -> int:
    """Write what ``make`` makes of a folder of results, or say what differs; the exit status."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder (default: benchmarks/results)"
    )
    options = parser.parse_args(argv)
    try:
        # All of them before anything is written: they agree with each other or stay as they are.
        documents = make(options.results)
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    changed = {
        path: text
        for path, text in documents.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    for path, text in changed.items():
        if options.check:
            said = f"{path} differs from what its results say; run python benchmarks/{parser.prog}"
            print(said, file=sys.stderr)
        else:
            write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
            print(f"{path} written")
    return int(options.check and bool(changed))
