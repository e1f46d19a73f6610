"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["write_whole"]


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
