"""What ``mnist_tasks.py`` does: learn the theta0 of every run, and evaluate what starts there."""

from __future__ import annotations

import argparse
from typing import Any

import joblib
from sklearn.base import BaseEstimator

from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate
from protocol.methods import (
    FEATURES,
    FEATURES_THETA0,
    METHODS,
    NAMES,
    Contender,
    NetworkSettings,
    features_contender,
    initializer_of,
    network_contender,
)
from protocol.pretrained import Pretrained, data_digest, learn
from protocol.rivals import RIVALS, rival_contenders
from protocol.store import ScoreLog
from protocol.task_plan import Plan
from protocol.tasks import pretraining_seed

__all__ = ["measure", "prepare"]


def prepare(options: argparse.Namespace, plan: Plan) -> Bench:
    """Load the data; ValueError now rather than after the pre-training."""
    dataset, X, data = load_scaled(options)
    network = NetworkSettings(
        hidden_layer_sizes=tuple(options.hidden_layer_sizes),
        epochs=plan.epochs,
        n_perturbations=plan.n_perturbations,
        device=options.device,
        coherent_epochs=plan.coherent_passes,
        classes=plan.classes,
    )
    tasks = tasks_of_runs(
        data.y_train,
        plan.n_labels,
        n_tasks=plan.tasks,
        n_runs=plan.runs,
        seed=options.seed,
        first_run=plan.first_run,
        classes=plan.classes,
    )
    return Bench(dataset, X, data, network, tasks, options)


class _Theta0s:
    """What the networks of a run start from, each learned once, whoever asks for it."""

    def __init__(self, plan: Plan, bench: Bench, run: int) -> None:
        self.plan, self.bench, self.run = plan, bench, run
        self.X_digest = data_digest(bench.X_unlabelled)
        self.learned: dict[str, Pretrained] = {}

    def of(self, name: str) -> Pretrained | None:
        """The theta0 of a method; None where it starts from scratch."""
        if name not in self.learned:
            initializer = initializer_of(
                METHODS[name],
                self.bench.network,
                random_state=pretraining_seed(self.run, seed=self.bench.options.seed),
                verbose=0 if self.bench.options.quiet else 1,
            )
            if initializer is None:
                return None
            self.learned[name] = self._learn(name, initializer)
        return self.learned[name]

    def _learn(self, name: str, initializer: BaseEstimator) -> Pretrained:
        bench, passes = self.bench, initializer.get_params()["max_iter"]
        bench.say(f"run {self.run}: learning theta0 of {name}, passes: {passes}")
        folder, X = bench.options.output / "theta0", bench.X_unlabelled
        theta0 = learn(initializer, X, name=name, folder=folder, X_digest=self.X_digest)
        bench.say(f"run {self.run}: {'reused' if theta0.reused else 'kept'} {theta0.path.name}")
        return theta0

    def records(self) -> list[dict[str, Any]]:
        return [
            {"method": name, "run": self.run} | theta0.record()
            for name, theta0 in self.learned.items()
        ]


def _contenders(plan: Plan, bench: Bench, run: int) -> tuple[list[Contender], list[dict[str, Any]]]:
    """The methods of a run, pre-trained where they are, and a record of each theta0."""
    theta0s, contenders = _Theta0s(plan, bench, run), []
    for name in plan.methods:
        theta0 = theta0s.of(FEATURES_THETA0 if name == FEATURES else name)
        initializer = None if theta0 is None else theta0.initializer
        digest = None if theta0 is None else theta0.digest
        if name == FEATURES:
            assert digest is not None  # theta0 with coherence is learned
            contender = features_contender(X=bench.X, initializer=initializer, theta0_digest=digest)
        else:
            contender = network_contender(
                METHODS[name],
                bench.network,
                X=bench.X,
                initializer=initializer,
                theta0_digest=digest,
            )
        contenders.append(contender)
    return contenders, theta0s.records()


def measure(plan: Plan, bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Scores and theta0 of every run, one run after the other."""
    options = bench.options
    scores: list[dict[str, Any]] = []
    learned: list[dict[str, Any]] = []
    log = ScoreLog(options.output / "scores.jsonl")
    jobs = joblib.effective_n_jobs(options.jobs)
    rivals: list[Contender] = []
    if options.rivals:
        bench.say("features and neighbours for the rivals")
        n_train = len(bench.data.y_train)
        rivals = rival_contenders(bench.X, n_train, seed=options.seed, n_jobs=jobs)
    for run in bench.tasks:
        contenders, records = _contenders(plan, bench, run)
        learned += records
        scores += evaluate(
            contenders + rivals,
            bench.tasks[run],
            plan.n_labels,
            data=bench.data,
            log=log,
            seed=options.seed,
            n_jobs=jobs,
            title=f"run {run}: evaluating",
            quiet=options.quiet,
        )
    order = {name: place for place, name in enumerate((*NAMES, *RIVALS))}
    scores.sort(key=lambda s: (order[s["method"]], s["n_labels"], s["run"], s["task"]))
    return scores, learned
