"""What ``budget.py`` does: learn every setting, look at it along the way, evaluate it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import joblib
import numpy as np

from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.budget_settings import METHOD, curve_name, initializer_for
from protocol.checkpoints import Checkpoint, learn_along, steps_of_passes
from protocol.evaluation import evaluate
from protocol.methods import METHODS, Contender, NetworkSettings, network_contender
from protocol.pretrained import data_digest, theta0_digest
from protocol.provenance import provenance
from protocol.store import ScoreLog, digest_of
from protocol.tasks import pretraining_seed, shuffled_rows
from protocol.yardstick import Yardstick
from sklearn_mmdinit import load_theta0

__all__ = ["BudgetBench", "Plan", "measure", "prepare"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    settings: tuple[str, ...]
    passes: tuple[float, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int


@dataclass(frozen=True)
class BudgetBench(Bench):
    """What every setting and run shares; ``steps`` has those of each number of passes."""

    plan: Plan
    steps: dict[float, int]
    commit: str | None

    def initializer(self, setting: str, run: int) -> Any:
        return initializer_for(
            setting,
            self.network,
            random_state=pretraining_seed(run, seed=self.options.seed),
            verbose=0 if self.options.quiet else 1,
        )

    def contender(self, name: str, checkpoint: Checkpoint) -> Contender:
        theta0 = load_theta0(checkpoint.path)
        contender = network_contender(
            METHOD,
            self.network,
            X=self.X,
            initializer=theta0,
            theta0_digest=theta0_digest(theta0),
        )
        return replace(contender, name=name)

    def scratch(self) -> Contender:
        method = METHODS[METHOD.scratch]
        return network_contender(
            method, self.network, X=self.X, initializer=None, theta0_digest=None
        )

    def evaluate(self, contenders: list[Contender], run: int, title: str) -> list[dict[str, Any]]:
        return evaluate(
            contenders,
            self.tasks[run],
            self.plan.n_labels,
            data=self.data,
            log=ScoreLog(self.options.output / "scores.jsonl"),
            seed=self.options.seed,
            n_jobs=joblib.effective_n_jobs(self.options.jobs),
            title=title,
            quiet=self.options.quiet,
        )


def prepare(options: argparse.Namespace, plan: Plan) -> BudgetBench:
    """Load the data; ValueError now rather than after the pre-training."""
    dataset, X, data = load_scaled(options)
    network = NetworkSettings(tuple(options.hidden_layer_sizes), device=options.device)
    batch_size = initializer_for(plan.settings[0], network, random_state=0).get_params()[
        "batch_size"
    ]
    return BudgetBench(
        dataset=dataset,
        X=X,
        data=data,
        network=network,
        tasks=tasks_of_runs(
            data.y_train, plan.n_labels, n_tasks=plan.tasks, n_runs=plan.runs, seed=options.seed
        ),
        options=options,
        plan=plan,
        steps=steps_of_passes(plan.passes, len(data.y_train) // batch_size),
        commit=provenance()["git_commit"],
    )


def _learn(bench: BudgetBench, setting: str, run: int) -> list[Checkpoint]:
    options, n = bench.options, len(bench.X_unlabelled)
    bench.say(f"run {run}: learning theta0 of {setting}, up to {bench.plan.passes[-1]:g} passes")
    return learn_along(
        bench.initializer(setting, run),
        bench.X_unlabelled,
        list(bench.steps.values()),
        order=partial(_order_of_pass, n, run, seed=options.seed),
        name=f"{setting}-run{run}",
        folder=options.output / "budget",
        # The order of the rows follows from seed and run; so must the names of the files.
        X_digest=digest_of([data_digest(bench.X_unlabelled), options.seed, run]),
        commit=bench.commit,
    )


def _order_of_pass(n: int, run: int, number: int, *, seed: int) -> np.ndarray:
    """One order for every setting: they differ in nothing but themselves."""
    return shuffled_rows(n, "passes", run, number, seed=seed)


def _yardstick(bench: BudgetBench, run: int) -> Yardstick:
    seed = bench.options.seed
    rows = shuffled_rows(len(bench.X_unlabelled), "yardstick", seed=seed)
    return Yardstick(
        bench.X_unlabelled[rows],
        bench.network,
        random_state=pretraining_seed(run, seed=seed),
        log=ScoreLog(bench.options.output / "losses.jsonl"),
    )


def measure(bench: BudgetBench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of all checkpoints, and all scores; each setting is finished before the next."""
    records: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for run in range(bench.plan.runs):
        scores += bench.evaluate([bench.scratch()], run, f"run {run}: evaluating scratch")
        yardstick = _yardstick(bench, run)
        for setting in bench.plan.settings:
            contenders = []
            for passes, checkpoint in zip(bench.steps, _learn(bench, setting, run), strict=True):
                name = curve_name(setting, passes)
                measured = yardstick.measure(load_theta0(checkpoint.path))
                head = {"setting": setting, "passes": passes, "run": run}
                records.append(head | checkpoint.record | measured)
                contenders.append(bench.contender(name, checkpoint))
            scores += bench.evaluate(contenders, run, f"run {run}: evaluating {setting}")
    return records, scores
