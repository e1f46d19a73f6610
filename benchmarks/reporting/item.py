"""Something that a reproduction consists of, and how much of it there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reporting.library import Library

__all__ = [
    "Expected",
    "Progress",
    "measured_once",
    "progress",
    "records_in",
    "runs_of",
    "settings_in",
]


@dataclass(frozen=True)
class Expected:
    """Something to be measured.

    Parameters
    ----------
    item : str
        What it is, to the reader.
    file : str
        Where its figures are, or will be.
    command : str
        What measures it, or goes on with it.
    time : str
        How long that takes from the beginning, to follow "about".
    parts : int
        Of how many parts it consists.
    count : callable
        From the file's content to how many of them are in it.
    """

    item: str
    file: str
    command: str
    time: str
    parts: int
    count: Callable[[dict[str, Any]], int]

    @property
    def not_run(self) -> str:
        return f"not run yet: `{self.command}`, about {self.time}"


@dataclass(frozen=True)
class Progress:
    """How much of an item there is."""

    expected: Expected
    done: int

    @property
    def whole(self) -> bool:
        return self.done >= self.expected.parts

    def __str__(self) -> str:
        if self.whole:
            return "measured"
        if not self.done:
            return self.expected.not_run
        return f"{self.done} of {self.expected.parts} parts; the rest {self.expected.not_run}"


def progress(expected: Expected, library: Library) -> Progress:
    """How much of an item the library has."""
    results = library.results(expected.file)
    return Progress(expected, 0 if results is None else expected.count(results))


def runs_of(names: tuple[str, ...], runs: int) -> Callable[[dict[str, Any]], int]:
    """Counts the runs of each of the names, the first so many."""

    def count(results: dict[str, Any]) -> int:
        found = {(entry["method"], entry["run"]) for entry in results["scores"]}
        return sum((name, run) in found for name in names for run in range(runs))

    return count


def records_in(results: dict[str, Any]) -> int:
    """Cells of a study."""
    return len(results["records"])


def settings_in(results: dict[str, Any]) -> int:
    """Settings of (lambda, xi); the fresh weights are none."""
    return sum(record["degeneracy_weight"] is not None for record in results["records"])


def measured_once(results: dict[str, Any]) -> int:
    """For what is there or not."""
    return 1
