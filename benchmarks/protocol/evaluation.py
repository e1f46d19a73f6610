"""``cross_val_score`` of every contender on every task, in parallel, kept as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import cross_val_score
from tqdm import tqdm

from data.datasets import Dataset, standardize
from protocol.methods import Contender
from protocol.pretrained import data_digest
from protocol.provenance import versions
from protocol.store import ScoreLog, digest_of
from protocol.tasks import Draw, Task, draw_rows, fit_seed

__all__ = ["LabelledData", "evaluate", "scaled"]

# Versions that cannot change a score.
IDLE_VERSIONS = {"python"}


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
    contenders: Sequence[Contender],
    tasks: Sequence[Task],
    n_labels: Sequence[int],
    data: LabelledData,
    seed: int,
) -> Iterator[Cell]:
    """Every cell, those of one contender on one task together: they are one call."""
    used = {name: v for name, v in versions().items() if name not in IDLE_VERSIONS}
    for task in tasks:
        random_state = fit_seed(task, seed=seed)
        draws = {n: draw_rows(data.y_train, task, n, seed=seed) for n in n_labels}
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
    estimator: BaseEstimator,
    X: np.ndarray,
    y: np.ndarray,
    splits: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[int, list[float]]:
    """Test accuracies of one estimator on one task, one for each split; runs in a worker."""
    scores = cross_val_score(estimator, X, y, cv=splits, scoring="accuracy", error_score="raise")
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
    """Test accuracy of every contender on every task at every N.

    A contender on a task is one ``cross_val_score`` whose ``cv`` has one (labelled rows, test
    rows) pair for each N. The calls are spread over the jobs, each worker with one thread, so
    that small networks do not fight over the cores. A score goes into the log as soon as its
    call returns; what is in the log already is not computed again.

    Parameters
    ----------
    contenders : sequence of Contender
    tasks : sequence of Task
    n_labels : sequence of int
        Values of N.
    data : LabelledData
        Labels of the rows that every contender's X has.
    log : ScoreLog
        Where scores are looked up and kept.
    seed : int
        What the draws and the fits follow from.
    n_jobs : int, default=1
        Number of processes, as joblib counts them.
    title : str
        Beginning of the progress bar.
    quiet : bool, default=False
        No progress bar.

    Returns
    -------
    list of dict
        One record a cell: key, method, run, task, values, n_labels, accuracy (0 to 1).
    """
    cells = list(_cells(contenders, tasks, n_labels, data, seed))
    done = log.read()
    missing = [cell for cell in cells if cell.key not in done]
    groups = [list(group) for _, group in groupby(missing, lambda c: (c.task, c.contender.name))]
    y = data.y
    labels = {task: task.apply(y) for task in tasks}
    test = np.arange(len(data.y_train), len(y))
    # One thread a worker: also what makes a score the same for every number of jobs above one.
    with (
        joblib.parallel_config(backend="loky", inner_max_num_threads=1),
        tqdm(
            desc=title,
            total=len(cells),
            initial=len(cells) - len(missing),
            unit="fit",
            disable=quiet,
        ) as bar,
    ):
        calls = (
            joblib.delayed(_score)(
                number,
                group[0].contender.make(group[0].random_state),
                group[0].contender.X,
                labels[group[0].task],
                [(cell.draw.rows, test) for cell in group],
            )
            for number, group in enumerate(groups)
        )
        # Unordered: a score must reach the log when it is ready, not when its turn comes.
        for number, scores in joblib.Parallel(n_jobs, return_as="generator_unordered")(calls):
            for cell, accuracy in zip(groups[number], scores, strict=True):
                done[cell.key] = cell.record(accuracy)
                log.append(done[cell.key])
                bar.update()
    return [done[cell.key] for cell in cells]
