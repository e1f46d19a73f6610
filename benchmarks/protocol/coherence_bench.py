"""What ``coherence.py`` does: learn a theta0 for each setting, and evaluate it."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from typing import Any

import joblib

from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.coherence_settings import Setting, initializer_for
from protocol.evaluation import evaluate
from protocol.methods import METHODS, Contender, NetworkSettings, network_contender
from protocol.pretrained import Pretrained, data_digest, learn
from protocol.store import ScoreLog
from protocol.tasks import pretraining_seed

__all__ = ["METHOD", "CoherenceBench", "Plan", "measure", "prepare"]

METHOD = METHODS["xavier/fcn/ours+coherence"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    settings: tuple[Setting, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int
    first_run: int


@dataclass(frozen=True)
class CoherenceBench(Bench):
    """What every setting and run shares."""

    plan: Plan
    X_digest: str

    def learn(self, setting: Setting, run: int) -> Pretrained:
        options = self.options
        initializer = initializer_for(
            setting,
            self.network,
            random_state=pretraining_seed(run, seed=options.seed),
            graphs=options.output / "graphs",
            verbose=0 if options.quiet else 1,
        )
        return learn(
            initializer,
            self.X_unlabelled,
            name=setting.method,
            folder=options.output / "theta0",
            X_digest=self.X_digest,
        )

    def contender(self, name: str, theta0: Pretrained | None) -> Contender:
        """The plain network from a theta0 under a name; from fresh weights without one."""
        contender = network_contender(
            METHODS[METHOD.scratch] if theta0 is None else METHOD,
            self.network,
            X=self.X,
            initializer=None if theta0 is None else theta0.initializer,
            theta0_digest=None if theta0 is None else theta0.digest,
        )
        return replace(contender, name=name)

    def evaluate(self, contender: Contender, run: int) -> list[dict[str, Any]]:
        return evaluate(
            [contender],
            self.tasks[run],
            self.plan.n_labels,
            data=self.data,
            log=ScoreLog(self.options.output / "scores.jsonl"),
            seed=self.options.seed,
            n_jobs=joblib.effective_n_jobs(self.options.jobs),
            title=f"run {run}: evaluating {contender.name}",
            quiet=self.options.quiet,
        )


def prepare(options: argparse.Namespace, plan: Plan) -> CoherenceBench:
    """Load the data; ValueError now rather than after the pre-training."""
    dataset, X, data = load_scaled(options)
    return CoherenceBench(
        dataset=dataset,
        X=X,
        data=data,
        network=NetworkSettings(tuple(options.hidden_layer_sizes), device=options.device),
        tasks=tasks_of_runs(
            data.y_train,
            plan.n_labels,
            n_tasks=plan.tasks,
            n_runs=plan.runs,
            seed=options.seed,
            first_run=plan.first_run,
        ),
        options=options,
        plan=plan,
        X_digest=data_digest(X[: len(data.y_train)]),
    )


def measure(bench: CoherenceBench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of every theta0, and all scores; each setting is finished before the next."""
    records: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for run in bench.tasks:
        scores += bench.evaluate(bench.contender(METHOD.scratch, None), run)
        for setting in bench.plan.settings:
            bench.say(f"run {run}: learning theta0 of {setting.method}")
            theta0 = bench.learn(setting, run)
            records.append(asdict(setting) | {"run": run} | theta0.record())
            scores += bench.evaluate(bench.contender(setting.method, theta0), run)
    return records, scores
