"""``cross_val_score`` of every contender on every task, on any engine, kept as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import cross_val_score
from tqdm import tqdm

from data.datasets import Dataset, standardize
from engines.engine import Call, Engine
from engines.loky import Loky
from protocol.methods import Contender
from protocol.pretrained import data_digest
from protocol.provenance import deciding_versions, require_versions
from protocol.store import ScoreLog, digest_of
from protocol.tasks import Draw, Task, draw_rows, fit_seed

__all__ = ["LabelledData", "evaluate", "evaluate_on", "scaled"]


Entry = tuple[Sequence[Contender], Sequence[Task]]


@dataclass(frozen=True)
class LabelledData:
    """Original classes of the training and test rows, and what stands for the whole dataset."""

    y_train: np.ndarray
    y_test: np.ndarray
    digest: str

    @property
    def y(self) -> np.ndarray:
        return np.concatenate([self.y_train, self.y_test])


def scaled(dataset: Dataset) -> tuple[np.ndarray, LabelledData]:
    """Images scaled as the paper does, training rows first, and their labels."""
    X = np.concatenate(standardize(dataset))
    parts = [data_digest(a) for a in (X, dataset.y_train, dataset.y_test)]
    return X, LabelledData(dataset.y_train, dataset.y_test, digest_of(parts))


@dataclass(frozen=True)
class Cell:
    """One score: a contender on a task with N, and the key it is kept under."""

    contender: Contender
    task: Task
    n_labels: int
    draw: Draw
    random_state: int
    key: str

    def record(self, accuracy: float) -> dict[str, Any]:
        return {
            "key": self.key,
            "method": self.contender.name,
            "run": self.task.run,
            "task": self.task.index,
            "values": list(self.task.values),
            "n_labels": self.n_labels,
            "accuracy": accuracy,
        }


def _cells(
    entries: Sequence[Entry],
    n_labels: Sequence[int],
    data: LabelledData,
    seed: int,
    law: str,
) -> Iterator[Cell]:
    """Every cell, those of one contender on one task together: they are one call."""
    used = deciding_versions()
    for contenders, task in ((who, task) for who, tasks in entries for task in tasks):
        random_state = fit_seed(task, seed=seed)
        draws = {n: draw_rows(data.y_train, task, n, seed=seed, law=law) for n in n_labels}
        rows = {n: data_digest(draw.rows) for n, draw in draws.items()}
        for contender in contenders:
            for n in n_labels:
                key = digest_of(
                    {
                        "name": contender.name,
                        "identity": contender.identity,
                        "data": data.digest,
                        "task": [task.run, task.index, *task.values],
                        "rows": rows[n],
                        "random_state": random_state,
                        "versions": used,
                    }
                )
                yield Cell(contender, task, n, draws[n], random_state, key)


def _score(
    number: int,
    used: dict[str, str],
    random_state: int,
    y: np.ndarray,
    splits: list[tuple[np.ndarray, np.ndarray]],
    make: Callable[[int], BaseEstimator],
    X: np.ndarray,
) -> tuple[int, list[float]]:
    """Test accuracies of one estimator on one task, one for each split; runs in a worker."""
    require_versions(used)
    scores = cross_val_score(
        make(random_state), X, y, cv=splits, scoring="accuracy", error_score="raise"
    )
    return number, scores.tolist()


def evaluate(
    contenders: Sequence[Contender],
    tasks: Sequence[Task],
    n_labels: Sequence[int],
    *,
    data: LabelledData,
    log: ScoreLog,
    seed: int,
    n_jobs: int = 1,
    title: str = "evaluation",
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """:func:`evaluate_on` this machine: every contender on every task, by `n_jobs` processes."""
    return evaluate_on(
        Loky(n_jobs),
        [(contenders, tasks)],
        n_labels,
        data=data,
        log=log,
        seed=seed,
        title=title,
        quiet=quiet,
    )


def evaluate_on(
    engine: Engine,
    entries: Sequence[Entry],
    n_labels: Sequence[int],
    *,
    data: LabelledData,
    log: ScoreLog,
    seed: int,
    law: str = "uniform",
    title: str = "evaluation",
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Test accuracy of contenders on tasks at every N.

    A contender on a task is one ``cross_val_score`` whose ``cv`` has one (labelled rows, test
    rows) pair for each N. The calls are spread over the engine's workers, each with one thread,
    so that small networks do not fight over the cores. A score goes into the log as soon as its
    call returns; what is in the log already is not computed again.

    Parameters
    ----------
    engine : Engine
        Where the calls are made; entered already.
    entries : sequence of (sequence of Contender, sequence of Task)
        All contenders of a pair on all its tasks.
    n_labels : sequence of int
        Values of N.
    data : LabelledData
        Labels of the rows that every contender's X has.
    log : ScoreLog
        Where scores are looked up and kept.
    seed : int
        What the draws and the fits follow from.
    law : str, default="uniform"
        How the rows of a binary task are drawn.
    title : str
        Beginning of the progress bar.
    quiet : bool, default=False
        No progress bar.

    Returns
    -------
    list of dict
        One record a cell: key, method, run, task, values, n_labels, accuracy (0 to 1).
    """
    cells = list(_cells(entries, n_labels, data, seed, law))
    done = log.read()
    missing = [cell for cell in cells if cell.key not in done]
    groups = [list(group) for _, group in groupby(missing, lambda c: (c.task, c.contender.name))]
    y = data.y
    labels = {task: task.apply(y) for _, tasks in entries for task in tasks}
    test = np.arange(len(data.y_train), len(y))
    used = deciding_versions()
    # The rows and theta0, which is in what `make` makes, are megabytes, and the same for many.
    calls = (
        Call(
            (
                number,
                used,
                group[0].random_state,
                labels[group[0].task],
                [(cell.draw.rows, test) for cell in group],
            ),
            shared=(group[0].contender.make, group[0].contender.X),
        )
        for number, group in enumerate(groups)
    )
    with tqdm(
        desc=title,
        total=len(cells),
        initial=len(cells) - len(missing),
        unit="fit",
        disable=quiet,
    ) as bar:
        for number, scores in engine.results(_score, calls):
            for cell, accuracy in zip(groups[number], scores, strict=True):
                done[cell.key] = cell.record(accuracy)
                log.append(done[cell.key])
                bar.update()
    return [done[cell.key] for cell in cells]
