"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["check_folder_of", "write_whole"]


def check_folder_of(target: Path) -> None:
    """Raise a FileNotFoundError where there is no folder to write a file to."""
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {str(target.parent)!r} to write {target.name!r} to")


def write_whole(target: Path, data: bytes) -> None:
    """Write a file beside its final place under another name, and then rename it."""
    # Not tempfile: its files can be read by their owner alone, and a rename keeps that.
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with open(partial, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
