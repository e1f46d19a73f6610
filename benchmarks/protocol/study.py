"""A measurement in cells: each is kept as it ends, and what is there is shown, whole or not."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.datasets import Dataset
from protocol.bench import say
from protocol.command import results_head, run_command
from protocol.provenance import hardware, provenance
from protocol.store import ScoreLog, write_json

__all__ = ["Cell", "Study", "run_study"]

# What a line of the log says of the machine, and the file of results once for all its cells.
MADE_WITH = ("commit", "machine")


@dataclass(frozen=True)
class Cell:
    """One thing to measure.

    Parameters
    ----------
    name : str
        For a line of progress.
    head : dict
        What it is, as JSON can hold it; its record begins with it.
    key : str
        Stands for all that decides what is found.
    compute : callable
        Measures it; returns the rest of its record.
    wanted : bool, default=True
        Whether this call is to measure it. What an earlier one kept is shown in any case.
    """

    name: str
    head: dict[str, Any]
    key: str
    compute: Callable[[], dict[str, Any]]
    wanted: bool = True


@dataclass(frozen=True)
class Study:
    """The cells of a command and what its file of results says of them all.

    Parameters
    ----------
    name : str
        Of the command; its log and its results are named after it.
    doc : str or None
        Its docstring, whose first line is the claim.
    cells : tuple of Cell
        In the order in which they are measured and shown.
    settings : dict
        What they have in common.
    options : Namespace
        With ``output`` and ``quiet``.
    dataset : Dataset, optional
        What the images are from.
    """

    name: str
    doc: str | None
    cells: tuple[Cell, ...]
    settings: dict[str, Any]
    options: argparse.Namespace
    dataset: Dataset | None = None

    @property
    def path(self) -> Path:
        """The file of results; its picture has the same name."""
        stem = self.name if self.dataset is None else f"{self.dataset.name}_{self.name}"
        folder: Path = self.options.output
        return folder / f"{stem}.json"

    @property
    def log(self) -> ScoreLog:
        return ScoreLog(self.options.output / f"{self.name}.jsonl")

    def measure(self) -> list[dict[str, Any]]:
        """Measure what is wanted and not there yet; records of all cells that are there."""
        done = self.log.read()
        made_with = {"commit": provenance()["git_commit"], "machine": hardware()}
        for cell in self.cells:
            if cell.wanted and cell.key not in done:
                say(self.options, cell.name)
                self.log.append({"key": cell.key, **cell.head, **cell.compute(), **made_with})
        return self.kept()

    def kept(self) -> list[dict[str, Any]]:
        """Records of the cells that are there, in their order."""
        done = self.log.read()
        return [done[cell.key] for cell in self.cells if cell.key in done]

    def results(self, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What the file of results holds."""
        commits = list(dict.fromkeys(record["commit"] for record in records))
        machines: list[dict[str, Any]] = []
        for record in records:
            if record["machine"] not in machines:
                machines.append(record["machine"])
        left_out = {"key", *MADE_WITH}
        return results_head(self.doc, self.dataset, self.settings) | {
            "measured_at_commits": commits,
            "measured_on": machines,
            "records": [
                {name: value for name, value in record.items() if name not in left_out}
                for record in records
            ],
        }


def run_study(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    prepare: Callable[[argparse.Namespace], Study],
    text: Callable[[dict[str, Any]], str],
    draw: Callable[[dict[str, Any], Path], str],
) -> int:
    """Run a command that measures in cells; the status that it ends with.

    Parameters
    ----------
    parser, options : ArgumentParser, Namespace
        The command line.
    prepare : callable
        From the options to the study; ValueError where they are wrong.
    text : callable
        The tables of results, to be printed.
    draw : callable
        ``draw(results, path)`` draws the picture and says whether it did.
    """

    def publish(study: Study, records: list[dict[str, Any]]) -> None:
        results = study.results(records)
        print(text(results), end="\n\n")
        write_json(study.path, results)
        print(draw(results, study.path.with_suffix(".png")))
        print(f"{study.path} written")

    return run_command(parser, options, prepare, Study.measure, publish, kept=Study.kept)
