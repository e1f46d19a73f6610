"""The frame of a command: its options, what it refuses, and what an interruption leaves.

A command says how to prepare, to measure and to show. Bad input ends with status 2 and one line
before any work, an interruption with 130 and a lost cluster with 75 and the promise that the same
command goes on.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from data.datasets import DATASETS, Dataset
from engines.engine import EngineError
from protocol.store import provenance, write_json

Job = TypeVar("Job")

OUTPUT = Path(__file__).resolve().parents[1] / "output"

# What sysexits.h has for a failure that need not happen again.
CLUSTER_LOST = 75


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


Written = tuple[Path, dict[str, Any]]
"""The file of results, and what it holds."""


def run_command(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    prepare: Callable[[argparse.Namespace], Job],
    measure: Callable[[Job], Written],
    text: Callable[[dict[str, Any]], str],
    draw: Callable[[dict[str, Any], Path], str] | None = None,
) -> int:
    """Run a command; the status that it ends with.

    ``prepare`` raises a ValueError or a RuntimeError (no data, a damaged file) where the options
    are wrong; ``measure`` keeps each part as it ends. What was found is printed, written and drawn.
    """

    def say(line: object) -> None:
        print(f"{parser.prog}: {line}", file=sys.stderr)

    options = parser.parse_args(argv)
    try:
        job = prepare(options)
    except (ValueError, RuntimeError) as error:
        say(error)
        return 2
    try:
        path, results = measure(job)
    except KeyboardInterrupt:
        say("stopped; the same command goes on from here")
        return 130
    except EngineError as error:
        say(f"{error}; the same command goes on from here")
        return CLUSTER_LOST
    print(text(results), end="\n\n")
    write_json(path, results)
    if draw is not None:
        print(draw(results, path.with_suffix(".png")))
    print(f"{path} written")
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
    add = parser.add_argument
    add("--output", type=Path, default=OUTPUT, help="default: benchmarks/output")
    add("--seed", type=not_negative, default=0, help="all randomness follows from it; default: 0")
    add("--quiet", action="store_true", help="no progress bars")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dataset", choices=DATASETS, default="mnist", help="default: mnist")
    add("--data-dir", type=Path, help="a folder with the four IDX files of (Fashion-)MNIST")
    add_output_options(parser)


def add_network_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    paper = (392, 392, 392)
    widths = "default: the paper's 392 392 392"
    add("--hidden-layer-sizes", nargs="+", type=positive, default=paper, metavar="W", help=widths)
    where = "of the pre-training; the rest is done on the CPU; default: auto"
    add("--device", default="auto", help=where)
    add_data_options(parser)


def add_classes_option(parser: argparse.ArgumentParser) -> None:
    """Add what the tasks are."""
    classes = "2: binary tasks; 10: N labelled images of each class, ten draws a run; default: 2"
    parser.add_argument("--classes", type=int, choices=(2, 10), default=2, help=classes)


def add_task_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add what every command on binary tasks can be asked for, with its own default values."""
    add = parser.add_argument
    add("--n-labels", nargs="+", type=positive, metavar="N", help="10 N + 2 N labelled images")
    add("--tasks", type=positive, help="tasks a run")
    add("--runs", type=positive, help="each run has its own theta0 and its own tasks")
    first = "runs R, R + 1, ...: settings are chosen on other runs than those that are reported"
    add("--first-run", type=not_negative, default=0, metavar="R", help=first)
    add("--jobs", type=int, default=-1, help="processes of the evaluation; default: one a core")
    add_network_options(parser)
    parser.set_defaults(draw="uniform", same_tasks=False, **defaults)
