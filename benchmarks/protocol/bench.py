"""What the benchmarks on binary tasks have in common: the data, scaled once, and the tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from data.datasets import DATASETS, Dataset
from protocol.evaluation import LabelledData, scaled
from protocol.methods import NetworkSettings
from protocol.tasks import Task, draw_rows, random_tasks, ten_way_tasks

__all__ = ["Bench", "load_scaled", "say", "tasks_of_runs"]


def say(options: argparse.Namespace, line: str) -> None:
    """A line of progress, unless the command line asks for quiet."""
    if not options.quiet:
        print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Bench:
    """The data, scaled once, and what every run shares; ``tasks`` has those of each run."""

    dataset: Dataset
    X: np.ndarray
    data: LabelledData
    network: NetworkSettings
    tasks: dict[int, list[Task]]
    options: argparse.Namespace

    @property
    def X_unlabelled(self) -> np.ndarray:
        return self.X[: len(self.data.y_train)]

    def say(self, line: str) -> None:
        say(self.options, line)


def load_scaled(options: argparse.Namespace) -> tuple[Dataset, np.ndarray, LabelledData]:
    """The dataset of the command line, its images scaled, and its labels."""
    dataset = DATASETS[options.dataset](data_dir=options.data_dir, report=partial(say, options))
    return dataset, *scaled(dataset)


def tasks_of_runs(
    y: np.ndarray,
    n_labels: Sequence[int],
    *,
    n_tasks: int,
    n_runs: int,
    seed: int,
    first_run: int = 0,
    classes: int = 2,
    law: str = "uniform",
) -> dict[int, list[Task]]:
    """The tasks of every run, by its number; ValueError now rather than after the pre-training.

    Parameters
    ----------
    y : ndarray of int, shape (n,)
        Original classes of the whole training set, from which the labelled rows will be drawn.
    n_labels : sequence of int
        Every N that will be asked for.
    n_tasks, n_runs : int
        How many tasks a run, and how many runs.
    seed : int
        What the tasks and the rows follow from.
    first_run : int, default=0
        Number of the first run.
    classes : int, default=2
        2: random binary tasks. Otherwise the task with all classes, which must be so many, and
        `n_tasks` draws of labelled rows.
    law : str, default="uniform"
        How the rows of a binary task will be drawn.

    Raises
    ------
    ValueError
        If the classes have fewer tasks, or the training set has too few rows for an N.
    """
    n_classes = int(y.max()) + 1
    if classes not in (2, n_classes):
        raise ValueError(f"classes = {classes}: the images have {n_classes}, or 2 in binary tasks")
    runs = range(first_run, first_run + n_runs)
    if classes == 2:
        tasks = {run: random_tasks(n_classes, n_tasks, seed=seed, run=run) for run in runs}
    else:
        tasks = {run: ten_way_tasks(n_classes, n_tasks, run=run) for run in runs}
    for n in n_labels:
        # Whether there are enough rows is the same for every task.
        draw_rows(y, tasks[first_run][0], n, seed=seed, law=law)
    return tasks
