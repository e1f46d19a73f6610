"""What commands share: options, what is refused, and what an interruption leaves."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data.datasets import DATASETS

OUTPUT = Path(__file__).resolve().parents[1] / "output"


def command_parser(file: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser of the name of a command's file, whose help is its docstring as it stands there."""
    return argparse.ArgumentParser(
        Path(file).name, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


@contextmanager
def refusing(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the command where input cannot be used: a ValueError, or a RuntimeError for data."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


@contextmanager
def resumable(parser: argparse.ArgumentParser) -> Iterator[None]:
    """End the command in a way that says that what was measured is kept."""
    try:
        yield
    except KeyboardInterrupt:
        parser.exit(130, f"{parser.prog}: stopped; the same command goes on from here\n")


def say(options: argparse.Namespace, line: str) -> None:
    """A line of progress, unless the command line asks for quiet."""
    if not options.quiet:
        print(line, file=sys.stderr, flush=True)


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


# Options that several commands share


def add_output_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    folder = "of results, each named by the options it is of; default: benchmarks/output"
    add("--output", type=Path, default=OUTPUT, help=folder)
    add("--seed", type=not_negative, default=0, help="all randomness follows from it; default: 0")
    add("--quiet", action="store_true", help="no progress bars")


def add_few_label_options(
    parser: argparse.ArgumentParser, methods: Iterable[str], n_labels: Sequence[int], data: str
) -> None:
    """The options of commands that measure methods with few labels of each class."""
    add, many = parser.add_argument, ", ".join(map(repr, methods))
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {many}")
    labels = f"labels of each class; default: {' '.join(map(str, n_labels))}"
    add("--n-labels", nargs="+", type=positive, default=n_labels, metavar="N", help=labels)
    add("--draws", type=positive, default=5, help="default: 5")
    add("--data-dir", type=Path, help=data)
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    add_output_options(parser)


def add_network_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    paper = (392, 392, 392)
    widths = "default: the paper's 392 392 392"
    add("--hidden-layer-sizes", nargs="+", type=positive, default=paper, metavar="W", help=widths)
    where = "of the pre-training; the rest is done on the CPU; default: auto"
    add("--device", default="auto", help=where)
    kernels = "whether the paper's objective sums the nine kernels of L_uni; default: sum"
    add("--kernels", choices=("sum", "mean"), default="sum", help=kernels)
    add("--dataset", choices=DATASETS, default="mnist", help="default: mnist")
    add("--data-dir", type=Path, help="a folder with the four IDX files of (Fashion-)MNIST")
    add_output_options(parser)


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
    parser.set_defaults(**defaults)
