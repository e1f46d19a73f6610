"""The frame of a command: its options, what it refuses, and what an interruption leaves.

A command says how to prepare, to measure and to show. Bad input ends with status 2 and one line
before any work, an interruption with 130 and a lost cluster with 75 and the promise that the same
command goes on.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from data.datasets import DATASETS, Dataset
from engines.engine import EngineLostError, EngineUnavailableError
from protocol.store import provenance, write_json

Job = TypeVar("Job")
Found = TypeVar("Found")

OUTPUT = Path(__file__).resolve().parents[1] / "output"

# What sysexits.h has for a failure that need not happen again.
CLUSTER_LOST = 75


def command_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a command's own docstring, as it stands there."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def results_head(
    doc: str | None, dataset: Dataset | None, settings: dict[str, Any], key: str = "settings"
) -> dict[str, Any]:
    """What every file of results begins with: the claim, the data, the settings, the machine."""
    head: dict[str, Any] = {"claim": (doc or "").splitlines()[0]}
    if dataset is not None:
        head["dataset"] = {"name": dataset.name, "source": dataset.source}
    return head | {key: settings} | provenance()


def run_command(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    prepare: Callable[[argparse.Namespace], Job],
    measure: Callable[[Job], Found],
    results_of: Callable[[Job, Found], tuple[Path, dict[str, Any]]],
    text: Callable[[dict[str, Any]], str],
    draw: Callable[[dict[str, Any], Path], str] | None = None,
    kept: Callable[[Job], Found] | None = None,
) -> int:
    """Run a command; the status that it ends with.

    ``prepare`` raises a ValueError or a RuntimeError (no data, a damaged file) where the options
    are wrong; ``measure`` keeps each part as it ends. The ``results_of`` what was found, or after
    an interruption of what is ``kept`` if a command has a use for a part, are printed, written and
    drawn.
    """

    def publish(found: Found) -> None:
        path, results = results_of(job, found)
        print(text(results), end="\n\n")
        write_json(path, results)
        if draw is not None:
            print(draw(results, path.with_suffix(".png")))
        print(f"{path} written")

    def say(line: object) -> None:
        print(f"{parser.prog}: {line}", file=sys.stderr)

    try:
        job = prepare(options)
    except (ValueError, RuntimeError) as error:
        say(error)
        return 2
    try:
        found = measure(job)
    except KeyboardInterrupt:
        if kept is not None:
            publish(kept(job))
        say("stopped; the same command goes on from here")
        return 130
    except EngineUnavailableError as error:
        say(error)
        return 2
    except EngineLostError as error:
        say(f"{error}; the same command goes on from here")
        return CLUSTER_LOST
    publish(found)
    return 0


# Types of values


def at_least(least: int) -> Callable[[str], int]:
    """A whole number, and not a smaller one."""

    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {text}")
        return value

    return whole


positive, not_negative = at_least(1), at_least(0)


def positive_number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0.0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


# Options that several commands share


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add where to write, the seed, and how much to say."""
    add = parser.add_argument
    add("--output", type=Path, default=OUTPUT, help="default: benchmarks/output")
    add("--seed", type=not_negative, default=0, help="all randomness follows from it; default: 0")
    add("--quiet", action="store_true", help="no progress bars")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add which data to measure on, and what every command has."""
    add = parser.add_argument
    add("--dataset", choices=DATASETS, default="mnist", help="default: mnist")
    add("--data-dir", type=Path, help="a folder with the four IDX files of (Fashion-)MNIST")
    add_output_options(parser)


def add_network_options(parser: argparse.ArgumentParser, *, device: bool = True) -> None:
    """Add the widths of the network and, where the command heeds it, where theta0 is learned."""
    parser.add_argument(
        "--hidden-layer-sizes",
        nargs="+",
        type=positive,
        default=(392, 392, 392),
        metavar="WIDTH",
        help="default: the paper's 392 392 392",
    )
    if device:
        parser.add_argument(
            "--device",
            default="auto",
            help="of the pre-training; the rest is done on the CPU; default: auto",
        )


def add_task_options(
    parser: argparse.ArgumentParser,
    *,
    n_labels: Sequence[int] | None = None,
    tasks: int | None = None,
    runs: int | None = None,
    first_run: int | None = None,
    device: bool = True,
) -> None:
    """Add what every command on binary tasks can be asked for; these are the plan's own values.

    Options that are not given are None, for a plan to fill in; without ``first_run`` there is no
    such option.
    """
    add = parser.add_argument

    def default(value: object) -> str:
        return "" if value is None else f"; default: {value}"

    many = " ".join(map(str, n_labels)) if n_labels else None
    add("--n-labels", nargs="+", type=positive, metavar="N",
        help=f"10 N + 2 N labelled images{default(many)}")  # fmt: skip
    add("--tasks", type=positive, help=f"tasks a run{default(tasks)}")
    add("--runs", type=positive,
        help=f"each run has its own theta0 and its own tasks{default(runs)}")  # fmt: skip
    if first_run is not None:
        add(
            "--first-run",
            type=not_negative,
            default=first_run,
            metavar="R",
            help="runs R, R + 1, ...: settings are chosen on other runs than those that are "
            f"reported{default(first_run)}",
        )
    add_network_options(parser, device=device)
    add("--jobs", type=int, default=-1, help="processes of the evaluation; default: one a core")
    add_data_options(parser)
