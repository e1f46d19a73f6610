"""``cross_val_score`` of every contender on every task, kept as it comes."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import cross_val_score
from tqdm import tqdm

from data.datasets import DATASETS, Dataset, standardize
from protocol.command import say
from protocol.methods import Contender, NetworkSettings
from protocol.parallel import results
from protocol.store import Log, data_digest, deciding_versions, digest_of
from protocol.tasks import Task, draw_rows, fit_seed, tasks_of_runs
from protocol.theta0s import Pretrained, learn, path_of


def load_scaled(options: argparse.Namespace) -> tuple[Dataset, np.ndarray]:
    """The dataset of the command line and its images, scaled as the paper does, training first."""
    dataset = DATASETS[options.dataset](data_dir=options.data_dir, report=partial(say, options))
    return dataset, np.concatenate(standardize(dataset))


@dataclass(frozen=True)
class Bench:
    """Images X, scaled, and what every run shares: the network, N, and the tasks of each run."""

    dataset: Dataset
    X: np.ndarray
    network: NetworkSettings
    n_labels: tuple[int, ...]
    tasks: dict[int, list[Task]]
    options: argparse.Namespace

    @property
    def X_unlabelled(self) -> np.ndarray:
        return self.X[: len(self.dataset.y_train)]

    @cached_property
    def X_digest(self) -> str:
        return data_digest(self.X_unlabelled)

    def say(self, line: str) -> None:
        say(self.options, line)

    def seed_of(self, run: int) -> int:
        """``random_state`` of what a run learns; 0 in run 0 of seed 0."""
        return int(self.options.seed + run)

    def learn(
        self, initializer: BaseEstimator, name: str, rows: np.ndarray | None = None
    ) -> Pretrained:
        """Theta0 learned from the unlabelled images, where every command keeps and finds it.

        ``rows`` are these images in the shape that another network takes.
        """
        digest = self.X_digest if rows is None else data_digest(rows)
        rows = self.X_unlabelled if rows is None else rows
        initializer.set_params(verbose=0 if self.options.quiet else 1)
        path = path_of(initializer, name, self.options.output / "theta0", digest)
        if not path.exists():
            epochs = initializer.get_params().get("max_iter", "as ours")
            self.say(f"learning theta0 of {name}, epochs: {epochs}")
        return learn(path, initializer, rows)

    @cached_property
    def _data_digest(self) -> str:
        parts = (self.X, self.dataset.y_train, self.dataset.y_test)
        return digest_of([data_digest(part) for part in parts])

    def _record(self, contender: Contender, task: Task, n: int, rows: np.ndarray) -> dict[str, Any]:
        """What is known of a score before it is there; its key stands for all that decides it."""
        identity = {
            "name": contender.name,
            "identity": contender.identity,
            "data": self._data_digest,
            "task": [task.run, task.index, *task.values],
            "rows": data_digest(rows),
            "random_state": fit_seed(task, seed=self.options.seed),
            "versions": deciding_versions(),
        }
        of = {"run": task.run, "task": task.index, "values": list(task.values), "n_labels": n}
        return {"key": digest_of(identity), "method": contender.name} | of

    def evaluate(
        self, contenders: Mapping[int, Sequence[Contender]], title: str = "evaluating"
    ) -> list[dict[str, Any]]:
        """Test accuracy (0 to 1) of the contenders of each run on all its tasks at every N.

        A contender on a task is one ``cross_val_score`` whose ``cv`` has one (labelled rows, test
        rows) pair for each N. What the log has already is not computed again.
        """
        log = Log(self.options.output / "scores.jsonl")
        y_train, seed = self.dataset.y_train, self.options.seed
        y = np.concatenate([y_train, self.dataset.y_test])
        test = np.arange(len(y_train), len(y))
        wanted = []
        calls: list[tuple[Any, ...]] = []
        for task in (task for run in contenders for task in self.tasks[run]):
            rows = {n: draw_rows(y_train, task, n, seed=seed) for n in self.n_labels}
            labels, random_state = task.apply(y), fit_seed(task, seed=seed)
            for contender in contenders[task.run]:
                cells = {n: self._record(contender, task, n, rows[n]) for n in self.n_labels}
                wanted += list(cells.values())
                missing = [cell for cell in cells.values() if cell["key"] not in log.records]
                splits = [(rows[cell["n_labels"]], test) for cell in missing]
                call = (missing, random_state, labels, splits, contender.make, contender.X)
                calls += [call] if missing else []
        scored, quiet = results(self.options.jobs, _score, calls), self.options.quiet
        for records in tqdm(scored, title, len(calls), unit="task", disable=quiet):
            for record in records:
                log.append(record)
        return [log.records[cell["key"]] for cell in wanted]


def _score(
    cells: list[dict[str, Any]],
    random_state: int,
    y: np.ndarray,
    splits: list[tuple[np.ndarray, np.ndarray]],
    make: Callable[[int], BaseEstimator],
    X: np.ndarray,
) -> list[dict[str, Any]]:
    """The records with accuracies of one estimator on one task; runs in a worker."""
    scores = cross_val_score(
        make(random_state), X, y, cv=splits, scoring="accuracy", error_score="raise"
    )
    return [{**cell, "accuracy": float(a)} for cell, a in zip(cells, scores, strict=True)]


def prepare_bench(options: argparse.Namespace) -> Bench:
    """Load the data and draw the tasks; ValueError now rather than after the pre-training."""
    dataset, X = load_scaled(options)
    network, n_labels = NetworkSettings.of(options), tuple(sorted(set(options.n_labels)))
    tasks = tasks_of_runs(
        dataset.y_train,
        n_labels,
        n_tasks=options.tasks,
        n_runs=options.runs,
        seed=options.seed,
        first_run=options.first_run,
        classes=network.classes,
    )
    return Bench(dataset, X, network, n_labels, tasks, options)
