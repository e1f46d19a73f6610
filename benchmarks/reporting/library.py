"""The committed results as a report reads them: what is there, and nothing where it is not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Library"]


@dataclass(frozen=True)
class Library:
    """A folder with files of results, their pictures, and notes that a person wrote."""

    folder: Path

    def results(self, file: str) -> dict[str, Any] | None:
        """What a file of results holds; None where it is not there yet.

        Raises
        ------
        ValueError
            If the file is not an object of JSON.
        """
        path = self.folder / file
        if not path.is_file():
            return None
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path.name} is not JSON: {error}") from error
        if not isinstance(held, dict):
            raise ValueError(f"{path.name} holds a {type(held).__name__}, not an object")
        return held

    def picture(self, file: str, words: str) -> str:
        """A link to a picture, or nothing where it is not there yet."""
        return f"![{words}]({file})" if (self.folder / file).is_file() else ""

    def note(self, name: str) -> str:
        """What ``notes/NAME.md`` says, or nothing where there is no such note."""
        path = self.folder / "notes" / f"{name}.md"
        return path.read_text(encoding="utf-8").strip() if path.is_file() else ""
