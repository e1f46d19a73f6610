"""Random binary tasks, and the one with all classes, and the labelled rows drawn for them.

Everything follows from one seed. Each thing drawn has a stream of its own, keyed by its purpose,
run, task and N, so that it does not depend on what else was asked for. No method takes part in the
keys: all methods of a run see the same tasks, rows and seeds, so that comparisons are paired.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TRAIN_ROWS_PER_N = 10
VALIDATION_ROWS_PER_N = 2

# First entry of a spawn key. The numbers are part of the protocol: changing one redraws all.
PURPOSES = {"tasks": 0, "rows": 1, "fit": 2, "diagnostics": 5, "balanced_rows": 6}


def seed_of(*parts: Any) -> int:
    """A seed that follows from numbers and names."""
    entropy = [zlib.crc32(str(part).encode()) for part in parts]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class Task:
    """A map of the classes onto labels that count from 0: class ``c`` becomes ``values[c]``."""

    run: int
    index: int
    values: tuple[int, ...]

    def apply(self, y: np.ndarray) -> np.ndarray:
        """Labels (n,) of the original classes (n,), which count from 0."""
        return np.asarray(self.values, dtype=np.int8)[y]


def _stream(seed: int, purpose: str, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES[purpose], *key))


def random_tasks(n_classes: int, n_tasks: int, *, seed: int, run: int) -> list[Task]:
    """Distinct uniformly random maps of the classes onto {0, 1}, both values used.

    A map and its complement are two, as in the paper's count of 2^10 - 2.
    """
    n_possible = 2**n_classes - 2
    if not 1 <= n_tasks <= n_possible:
        raise ValueError(
            f"n_tasks = {n_tasks}: {n_classes} classes have between 1 and {n_possible} binary tasks"
        )
    rng = np.random.default_rng(_stream(seed, "tasks", run))
    maps: dict[tuple[int, ...], None] = {}  # a set that keeps the order of the draws
    while len(maps) < n_tasks:
        values = tuple(rng.integers(0, 2, size=n_classes).tolist())
        if 0 < sum(values) < n_classes:
            maps.setdefault(values)
    return [Task(run, index, values) for index, values in enumerate(maps)]


def draw_rows(y: np.ndarray, task: Task, n_labels: int, *, seed: int) -> np.ndarray:
    """Numbers of the labelled rows of a task among classes y (n,).

    A binary task has 10 N rows to train on and then 2 N to validate with. Where the task keeps the
    classes apart they are exactly N of each class, and none to validate with.
    """
    draw = _draw_uniformly if max(task.values) == 1 else _draw_of_each_class
    return draw(y, task, n_labels, seed)


def _draw_of_each_class(y: np.ndarray, task: Task, n_labels: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(_stream(seed, "balanced_rows", task.run, task.index, n_labels))
    chosen = [
        rng.choice(np.flatnonzero(y == c), size=n_labels, replace=False)
        for c in range(len(task.values))
    ]
    # Mixed, so that no reader of the rows in their order meets one class after the other.
    return rng.permutation(np.concatenate(chosen))


def _draw_uniformly(y: np.ndarray, task: Task, n_labels: int, seed: int) -> np.ndarray:
    """10 N rows to train on and 2 N to validate with, given that both labels are trained on.

    A draw whose training rows have one label is drawn again as a whole: no class is balanced.
    """
    per_n = TRAIN_ROWS_PER_N + VALIDATION_ROWS_PER_N
    labels = task.apply(y)
    n_train = TRAIN_ROWS_PER_N * n_labels
    rng = np.random.default_rng(_stream(seed, "rows", task.run, task.index, n_labels))
    while True:
        rows = rng.choice(len(y), size=per_n * n_labels, replace=False)
        train = labels[rows[:n_train]]
        if train.min() != train.max():
            return rows


def tasks_of_runs(
    y: np.ndarray,
    n_labels: Sequence[int],
    *,
    n_tasks: int,
    n_runs: int,
    seed: int,
    first_run: int = 0,
    classes: int = 2,
) -> dict[int, list[Task]]:
    """The tasks of every run by its number; ValueError now rather than after the pre-training."""
    n_classes = int(y.max()) + 1
    runs = range(first_run, first_run + n_runs)
    if classes == 2:
        tasks = {run: random_tasks(n_classes, n_tasks, seed=seed, run=run) for run in runs}
    else:
        # One task, once for each draw of labelled rows.
        all_apart, draws = tuple(range(n_classes)), range(n_tasks)
        tasks = {run: [Task(run, index, all_apart) for index in draws] for run in runs}
    try:
        # Whether there are enough rows is the same for every task.
        draw_rows(y, tasks[first_run][0], max(n_labels), seed=seed)
    except ValueError as error:
        there = f"{len(y)} training rows, {np.bincount(y).min()} of the rarest class"
        raise ValueError(f"N = {max(n_labels)} is too many for {there}: {error}") from error
    return tasks


def rows_of_classes(y: np.ndarray, n_labels: int, seed: int) -> np.ndarray:
    """N rows of each class y (n,), or all of a smaller one; fewer are part of more."""
    order = np.random.default_rng(seed).permutation(len(y))
    return np.concatenate([order[y[order] == c][:n_labels] for c in np.unique(y)])


def fit_seed(task: Task, *, seed: int) -> int:
    """``random_state`` of the fine-tuning on a task, the same for every method and every N."""
    return int(_stream(seed, "fit", task.run, task.index).generate_state(1)[0])


def diagnostics_seed(*, seed: int) -> int:
    """``random_state`` of the diagnostics; no theta0 was learned under its perturbations."""
    return int(_stream(seed, "diagnostics").generate_state(1)[0])
