"""Files that survive an interruption: atomic writes, and a log of results to go on from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ScoreLog", "digest_of", "write_atomically", "write_json"]


def digest_of(value: Any) -> str:
    """Sixteen hexadecimal digits that stand for a value JSON can hold.

    Unlike ``joblib.hash`` this reads values and not pickles, so it is the same in every process
    and for an object that came back from disk.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: matplotlib and others choose the format by it.
    # On a folder that machines share the number of a process is not enough.
    part = path.with_name(f".part-{platform.node()}-{os.getpid()}-{path.name}")
    try:
        write(part)
        os.replace(part, path)
    except BaseException:  # an interruption too must leave nothing behind
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write an object, one key a line and one element of a list a line, atomically."""
    entries = []
    for key, entry in value.items():
        text = json.dumps(entry)
        if isinstance(entry, list):
            text = "[" + ",".join(f"\n  {json.dumps(element)}" for element in entry) + "\n ]"
        entries.append(f"\n {json.dumps(key)}: {text}")
    text = "{" + ",".join(entries) + "\n}\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


class ScoreLog:
    """Results as they come, one JSON object a line, looked up by their key.

    Parameters
    ----------
    path : Path
        The file; made on the first ``append``. A line cut short by a killed process is
        dropped on reading, and the next line starts on a line of its own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Every whole record, by its ``"key"``."""
        if not self.path.exists():
            return {}
        records: dict[str, dict[str, Any]] = {}
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # the cut line; its cell is simply done again
                record = json.loads(line)
                if isinstance(record, dict) and "key" in record:
                    records[record["key"]] = record
        return records

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # what a killed process left
                    file.write(b"\n")
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
