"""Random binary tasks, and the one with all classes, and the labelled rows drawn for them.

Everything follows from one seed. Each thing drawn has its own
``numpy.random.SeedSequence(seed, spawn_key=(purpose, run, ...))``, so that nothing drawn
depends on what else was asked for: more tasks, other values of N, or another list of methods
leave the tasks and the rows that were there as they are. No method takes part in the keys:
every method of a run sees the same tasks, the same rows and the same seed, which is what
makes the comparison a paired one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = [
    "DRAWS",
    "Draw",
    "Task",
    "diagnostics_seed",
    "draw_rows",
    "fit_seed",
    "n_rows",
    "pretraining_seed",
    "random_tasks",
    "shuffled_rows",
    "ten_way_tasks",
]

TRAIN_ROWS_PER_N = 10
VALIDATION_ROWS_PER_N = 2

# First entry of a spawn key. The numbers are part of the protocol: changing one redraws all.
PURPOSES = {
    "tasks": 0,
    "rows": 1,
    "fit": 2,
    "passes": 3,
    "yardstick": 4,
    "diagnostics": 5,
    "balanced_rows": 6,
    "self_training": 7,
    "balanced_task_rows": 8,
}


@dataclass(frozen=True)
class Task:
    """A map of the classes onto labels that count from 0: class ``c`` becomes ``values[c]``."""

    run: int
    index: int
    values: tuple[int, ...]

    @property
    def n_labels(self) -> int:
        """How many labels there are: two but for the task with all classes."""
        return max(self.values) + 1

    def apply(self, y: np.ndarray) -> np.ndarray:
        """Labels (n,) of the original classes (n,), which count from 0."""
        return np.asarray(self.values, dtype=np.int8)[y]


@dataclass(frozen=True)
class Draw:
    """Row numbers of the training set: (10 N,) to train on and (2 N,) or none to validate with."""

    train: np.ndarray
    validation: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """All rows, the training rows first: what a splitter that cuts off the end needs."""
        return np.concatenate([self.train, self.validation])


def n_rows(n_labels: int) -> int:
    """How many labelled rows N stands for, training and validation together."""
    return (TRAIN_ROWS_PER_N + VALIDATION_ROWS_PER_N) * n_labels


def _stream(seed: int, purpose: str, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(PURPOSES[purpose], *key))


def random_tasks(n_classes: int, n_tasks: int, *, seed: int, run: int) -> list[Task]:
    """Distinct random maps of the classes onto {0, 1}, both values used.

    Parameters
    ----------
    n_classes : int
        Number of original classes, at least 2.
    n_tasks : int
        How many tasks, at most the ``2**n_classes - 2`` there are.
    seed, run : int
        What the tasks follow from. The first k tasks are the same for every ``n_tasks >= k``.

    Returns
    -------
    list of Task
        Uniform over the maps that use both values; within a run no map comes twice. (A map and
        its complement are two maps, as in the paper's count of 2^10 - 2.)

    Raises
    ------
    ValueError
        If there are not that many tasks.
    """
    n_possible = 2**n_classes - 2
    if not 1 <= n_tasks <= n_possible:
        raise ValueError(
            f"n_tasks = {n_tasks}: {n_classes} classes have between 1 and {n_possible} binary tasks"
        )
    rng = np.random.default_rng(_stream(seed, "tasks", run))
    found: dict[tuple[int, ...], None] = {}  # a set that keeps the order of the draws
    while len(found) < n_tasks:
        values = tuple(rng.integers(0, 2, size=n_classes).tolist())
        if 0 < sum(values) < n_classes:
            found.setdefault(values)
    return [Task(run, index, values) for index, values in enumerate(found)]


def ten_way_tasks(n_classes: int, n_draws: int, *, run: int) -> list[Task]:
    """The task with all classes, once for each draw of labelled rows."""
    return [Task(run, index, tuple(range(n_classes))) for index in range(n_draws)]


def draw_rows(y: np.ndarray, task: Task, n_labels: int, *, seed: int, law: str = "uniform") -> Draw:
    """The labelled rows of a task, none twice.

    A binary task has 10 N to train on and 2 N to validate with. Where the task keeps the classes
    apart they are exactly N of each class, and none to validate with.

    Parameters
    ----------
    y : ndarray of int, shape (n,)
        Original classes of the whole training set.
    task : Task
        The map onto labels.
    n_labels : int
        N.
    seed : int
        The rows follow from (seed, task.run, task.index, N) and the law alone.
    law : str, default="uniform"
        A key of DRAWS: how the rows of a binary task are drawn.

    Raises
    ------
    ValueError
        If there is no such law, or the training set has too few rows, or one label alone under
        the task.
    """
    if law not in DRAWS:
        raise ValueError(f"unknown law {law!r} of drawing rows; valid ones are {', '.join(DRAWS)}")
    draw = DRAWS[law] if task.n_labels == 2 else _draw_of_each_class
    return draw(y, task, n_labels, seed)


def _draw_of_each_class(y: np.ndarray, task: Task, n_labels: int, seed: int) -> Draw:
    fewest = int(np.bincount(y, minlength=len(task.values)).min())
    if not 1 <= n_labels <= fewest:
        raise ValueError(
            f"N = {n_labels} labelled rows of each class: N must be between 1 and {fewest}, the "
            "rows of the rarest class in the training set"
        )
    rng = np.random.default_rng(_stream(seed, "balanced_rows", task.run, task.index, n_labels))
    chosen = [
        rng.choice(np.flatnonzero(y == c), size=n_labels, replace=False)
        for c in range(len(task.values))
    ]
    # Mixed, so that no reader of the rows in their order meets one class after the other.
    return Draw(rng.permutation(np.concatenate(chosen)), np.empty(0, dtype=np.int64))


def _draw_balanced(y: np.ndarray, task: Task, n_labels: int, seed: int) -> Draw:
    """N rows of each class to train on, and 2 N in all to validate with.

    Of the validation rows every class has as many as any other, or one more where 2 N is no
    multiple of the number of classes; which ones have it is drawn too.
    """
    counts = np.bincount(y, minlength=len(task.values))
    n_classes = len(counts)
    if n_classes != TRAIN_ROWS_PER_N:
        raise ValueError(
            f"a balanced draw has N rows of each of {TRAIN_ROWS_PER_N} classes; the images have "
            f"{n_classes}"
        )
    each, over = divmod(VALIDATION_ROWS_PER_N * n_labels, n_classes)
    n_most = n_labels + each + (over > 0)
    if n_labels < 1 or n_most > counts.min():
        raise ValueError(
            f"N = {n_labels} takes up to {n_most} labelled rows of a class; the rarest one has "
            f"{counts.min()} rows in the training set, and N must be 1 or more"
        )
    rng = np.random.default_rng(_stream(seed, "balanced_task_rows", task.run, task.index, n_labels))
    more = np.isin(np.arange(n_classes), rng.choice(n_classes, size=over, replace=False))
    chosen = [
        rng.choice(np.flatnonzero(y == c), size=n_labels + each + more[c], replace=False)
        for c in range(n_classes)
    ]
    # Mixed, so that no reader of the rows in their order meets one class after the other.
    train, validation = (
        rng.permutation(np.concatenate(parts))
        for parts in ([rows[:n_labels] for rows in chosen], [rows[n_labels:] for rows in chosen])
    )
    return Draw(train, validation)


def _draw_uniformly(y: np.ndarray, task: Task, n_labels: int, seed: int) -> Draw:
    """10 N rows to train on and 2 N to validate with.

    Rows are drawn uniformly without replacement. A draw whose training rows all have one label
    under this task is thrown away and drawn again as a whole, so what comes out is the uniform law
    conditioned on both labels being among the training rows, and nothing else is tilted:
    no row is exchanged, no class is balanced. (At N = 5 the most lopsided task, one digit
    against nine, needs this about once in 200 draws.) The validation rows may have one label.
    """
    if n_labels < 1 or n_rows(n_labels) > len(y):
        raise ValueError(
            f"N = {n_labels} takes {n_rows(n_labels)} labelled rows; the training set has {len(y)} "
            f"and N must be between 1 and {len(y) // n_rows(1)}"
        )
    labels = task.apply(y)
    if labels.min() == labels.max():
        raise ValueError(f"under the task {task.values} every row has the label {labels[0]}")
    n_train = TRAIN_ROWS_PER_N * n_labels
    rng = np.random.default_rng(_stream(seed, "rows", task.run, task.index, n_labels))
    while True:
        rows = rng.choice(len(y), size=n_rows(n_labels), replace=False)
        train, validation = rows[:n_train], rows[n_train:]
        if labels[train].min() != labels[train].max():
            return Draw(train, validation)


DRAWS = {"uniform": _draw_uniformly, "balanced": _draw_balanced}
"""How the labelled rows of a binary task may be drawn."""


def shuffled_rows(n: int, purpose: str, *key: int, seed: int) -> np.ndarray:
    """The numbers 0 to n - 1 in a random order that follows from seed, purpose and key alone."""
    return np.random.default_rng(_stream(seed, purpose, *key)).permutation(n)


def fit_seed(task: Task, *, seed: int) -> int:
    """``random_state`` of the fine-tuning on a task, the same for every method and every N."""
    return int(_stream(seed, "fit", task.run, task.index).generate_state(1)[0])


def pretraining_seed(run: int, *, seed: int) -> int:
    """``random_state`` of the pre-training of a run; run 0 of seed 0 is ``random_state=0``."""
    return seed + run


def diagnostics_seed(*, seed: int) -> int:
    """``random_state`` of the diagnostics; no theta0 was learned under its perturbations."""
    return int(_stream(seed, "diagnostics").generate_state(1)[0])
