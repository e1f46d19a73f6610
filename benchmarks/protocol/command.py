"""The frame of a command: bad input is refused before any work, and Ctrl-C loses none.

A command says how to prepare, measure and publish. Bad input ends with status 2 and one line,
an interruption with 130 and the promise that the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from data.datasets import Dataset
from protocol.provenance import provenance

__all__ = ["command_parser", "results_head", "run_command"]

Job = TypeVar("Job")
Found = TypeVar("Found")


def command_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a command's own docstring, as it stands there."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def results_head(
    doc: str | None, dataset: Dataset | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """What every file of results begins with: the claim, the data, the settings, the machine."""
    head: dict[str, Any] = {"claim": (doc or "").splitlines()[0]}
    if dataset is not None:
        head["dataset"] = {"name": dataset.name, "source": dataset.source}
    return head | {"settings": settings} | provenance()


def run_command(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    prepare: Callable[[argparse.Namespace], Job],
    measure: Callable[[Job], Found],
    publish: Callable[[Job, Found], None],
    *,
    kept: Callable[[Job], Found] | None = None,
) -> int:
    """Run a command; the status that it ends with.

    Parameters
    ----------
    parser, options : ArgumentParser, Namespace
        The command line.
    prepare : callable
        From the options to what is to be measured; a ValueError or a RuntimeError (no data, a
        damaged file) says what is wrong with them.
    measure : callable
        Does the work, and keeps each part as it ends.
    publish : callable
        Prints and writes what was found.
    kept : callable, optional
        What there is after an interruption, which is then published as far as it goes; without
        it nothing is.
    """
    try:
        job = prepare(options)
    except (ValueError, RuntimeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    try:
        found = measure(job)
    except KeyboardInterrupt:
        if kept is not None:
            publish(job, kept(job))
        print(f"\n{parser.prog}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    publish(job, found)
    return 0
