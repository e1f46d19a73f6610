"""What ``mnist_tasks.py`` does: learn the theta0 of every run, and evaluate what starts there."""

from __future__ import annotations

import argparse
from typing import Any

import joblib
import numpy as np

from engines.engine import Engine
from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate_on
from protocol.methods import NetworkSettings
from protocol.network_kinds import NETWORK_KINDS
from protocol.pretrained import Pretrained
from protocol.pretraining import Pretraining, learn_all
from protocol.rivals import ALL_RIVALS, Rivals
from protocol.store import ScoreLog
from protocol.task_plan import Plan
from protocol.tasks import pretraining_seed

__all__ = ["measure", "prepare"]


def prepare(options: argparse.Namespace, plan: Plan) -> Bench:
    """Load the data; ValueError now rather than after the pre-training."""
    dataset, X, data = load_scaled(options)
    NETWORK_KINDS[plan.network].rows(X[:1])
    network = NetworkSettings(
        hidden_layer_sizes=tuple(options.hidden_layer_sizes),
        epochs=plan.epochs,
        n_perturbations=plan.n_perturbations,
        device=options.device,
        coherent_epochs=plan.coherent_passes,
        classes=plan.classes,
        precision=options.precision,
        kernels=plan.kernels,
        augmentation=plan.augmentation,
        neighbors=plan.neighbors,
        separation=plan.separation,
        rounds=plan.rounds,
    )
    tasks = tasks_of_runs(
        data.y_train,
        plan.n_labels,
        n_tasks=plan.tasks,
        n_runs=plan.runs,
        seed=options.seed,
        first_run=plan.first_run,
        classes=plan.classes,
        law=plan.draw,
    )
    return Bench(dataset, X, data, network, tasks, options)


def _theta0s(
    plan: Plan, bench: Bench, X: np.ndarray, engine: Engine
) -> dict[tuple[str, int], Pretrained]:
    """What networks start from, by method and run; nothing for those from scratch."""
    options, kind = bench.options, NETWORK_KINDS[plan.network]
    names = dict.fromkeys(map(kind.theta0_of, plan.methods))
    pretrainings = [
        Pretraining(name, run, initializer)
        for run in bench.tasks
        for name in names
        if (
            initializer := kind.initializer(
                name,
                bench.network,
                bench.X.shape[1],
                pretraining_seed(run, seed=options.seed),
            )
        )
        is not None
    ]
    return learn_all(
        pretrainings,
        X,
        len(bench.data.y_train),
        folder=options.output / "theta0",
        engine=engine,
        say=bench.say,
        quiet=options.quiet,
    )


def measure(
    plan: Plan, bench: Bench, engine: Engine
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Scores of every run, and records of every theta0: first all are learned, then evaluated.

    Parameters
    ----------
    plan, bench : Plan, Bench
        What to measure, and on what.
    engine : Engine
        Where cells are computed; entered already.
    """
    options, kind = bench.options, NETWORK_KINDS[plan.network]
    X = kind.rows(bench.X)
    theta0s = _theta0s(plan, bench, X, engine)
    records = [
        {"method": name, "run": run} | theta0.record() for (name, run), theta0 in theta0s.items()
    ]
    rivals = Rivals(plan.rivals, bench, n_jobs=joblib.effective_n_jobs(options.jobs))
    entries = []
    for run, tasks in bench.tasks.items():
        own = [
            kind.contender(
                name, bench.network, X=X, theta0=theta0s.get((kind.theta0_of(name), run))
            )
            for name in plan.methods
        ]
        others, learned = rivals.of_run(run)
        entries.append((own + others, tasks))
        records += learned
    scores = evaluate_on(
        engine,
        entries,
        plan.n_labels,
        data=bench.data,
        log=ScoreLog(options.output / "scores.jsonl"),
        seed=options.seed,
        law=plan.draw,
        title="evaluating",
        quiet=options.quiet,
    )
    order = {name: place for place, name in enumerate((*kind.names, *ALL_RIVALS))}
    scores.sort(key=lambda s: (order[s["method"]], s["n_labels"], s["run"], s["task"]))
    return scores, records
