"""Command line options that several benchmarks share, and the types of their values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from data.datasets import DATASETS

__all__ = [
    "add_data_options",
    "add_network_options",
    "add_output_options",
    "add_task_options",
    "not_negative",
    "positive",
    "positive_number",
    "two_or_more",
]

OUTPUT = Path(__file__).resolve().parents[1] / "output"


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def two_or_more(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"must be 2 or more, got {text}")
    return value


def not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return value


def positive_number(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0.0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text}")
    return value


def _with_default(text: str, value: object) -> str:
    return text if value is None else f"{text}; default: {value}"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add where to write, the seed, and how much to say."""
    add = parser.add_argument
    add("--output", type=Path, default=OUTPUT, help="default: benchmarks/output")
    add("--seed", type=not_negative, default=0, help="all randomness follows from it; default: 0")
    add("--quiet", action="store_true", help="no progress bars")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add which data to measure on, where to write, the seed, and how much to say."""
    add = parser.add_argument
    add("--dataset", choices=DATASETS, default="mnist", help="default: mnist")
    add("--data-dir", type=Path, help="a folder with the four IDX files of (Fashion-)MNIST")
    add_output_options(parser)


def add_network_options(
    parser: argparse.ArgumentParser, *, device: bool = True, precision: bool = True
) -> None:
    """Add the widths of the network, where theta0 is learned, and how precisely.

    The latter two are for commands that heed them.
    """
    add = parser.add_argument
    add(
        "--hidden-layer-sizes",
        nargs="+",
        type=positive,
        default=(392, 392, 392),
        metavar="WIDTH",
        help="default: the paper's 392 392 392",
    )
    if device:
        add(
            "--device",
            default="auto",
            help="of the pre-training; the rest is done on the CPU; default: auto",
        )
    if precision:
        add(
            "--precision",
            choices=("float32", "bfloat16"),
            default="float32",
            help="to what the factors of the pre-training's large products are rounded, of a "
            "perceptron with the paper's objective; default: float32",
        )


def add_task_options(
    parser: argparse.ArgumentParser,
    *,
    n_labels: Sequence[int] | None = None,
    tasks: int | None = None,
    runs: int | None = None,
    first_run: int | None = None,
    device: bool = True,
    precision: bool = False,
) -> None:
    """Add what every benchmark on binary tasks can be asked for.

    Parameters
    ----------
    parser : ArgumentParser
        Takes the options, after those it has.
    n_labels, tasks, runs : optional
        The plan's own, for the help texts; leave them out where plans differ. The options'
        values are None where they are not given.
    first_run : int, optional
        Default of ``--first-run``; without it there is no such option.
    device, precision : bool
        Whether the command heeds these options.
    """
    add = parser.add_argument
    add(
        "--n-labels",
        nargs="+",
        type=positive,
        metavar="N",
        help=_with_default(
            "10 N + 2 N labelled images", " ".join(map(str, n_labels)) if n_labels else None
        ),
    )
    add("--tasks", type=positive, help=_with_default("tasks a run", tasks))
    add(
        "--runs",
        type=positive,
        help=_with_default("each run has its own theta0 and its own tasks", runs),
    )
    if first_run is not None:
        add(
            "--first-run",
            type=not_negative,
            default=first_run,
            metavar="R",
            help="runs R, R + 1, ...: settings are chosen on other runs than those that are "
            f"reported; default: {first_run}",
        )
    add_network_options(parser, device=device, precision=precision)
    add("--jobs", type=int, default=-1, help="processes of the evaluation; default: one a core")
    add_data_options(parser)
