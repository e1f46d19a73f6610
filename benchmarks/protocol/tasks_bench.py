"""What ``mnist_tasks.py`` does: learn the theta0 of every run, and evaluate what starts there."""

from __future__ import annotations

import argparse
from typing import Any

import joblib

from engines.engine import Engine
from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate_on
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
from protocol.pretrained import Pretrained
from protocol.pretraining import Pretraining, learn_all
from protocol.rivals import RIVALS, Rivals
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
        law=plan.draw,
    )
    return Bench(dataset, X, data, network, tasks, options)


def _theta0_of(name: str) -> str:
    """The network whose theta0 a method of the plan starts from, if it has one."""
    return FEATURES_THETA0 if name == FEATURES else name


def _theta0s(plan: Plan, bench: Bench, engine: Engine) -> dict[tuple[str, int], Pretrained]:
    """What networks start from, by method and run; nothing for those from scratch."""
    options = bench.options
    names = dict.fromkeys(map(_theta0_of, plan.methods))
    pretrainings = [
        Pretraining(name, run, initializer)
        for run in bench.tasks
        for name in names
        if (
            initializer := initializer_of(
                METHODS[name],
                bench.network,
                random_state=pretraining_seed(run, seed=options.seed),
            )
        )
        is not None
    ]
    return learn_all(
        pretrainings,
        bench.X,
        len(bench.data.y_train),
        folder=options.output / "theta0",
        engine=engine,
        say=bench.say,
        quiet=options.quiet,
    )


def _contender(name: str, bench: Bench, theta0: Pretrained | None) -> Contender:
    """A method of the plan, from its theta0; None where it starts from scratch."""
    if name == FEATURES:
        assert theta0 is not None  # theta0 with coherence is learned
        return features_contender(
            X=bench.X, initializer=theta0.initializer, theta0_digest=theta0.digest
        )
    return network_contender(
        METHODS[name],
        bench.network,
        X=bench.X,
        initializer=None if theta0 is None else theta0.initializer,
        theta0_digest=None if theta0 is None else theta0.digest,
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
    options = bench.options
    theta0s = _theta0s(plan, bench, engine)
    records = [
        {"method": name, "run": run} | theta0.record() for (name, run), theta0 in theta0s.items()
    ]
    rivals = Rivals(plan.rivals, bench, n_jobs=joblib.effective_n_jobs(options.jobs))
    entries = []
    for run, tasks in bench.tasks.items():
        own = [
            _contender(name, bench, theta0s.get((_theta0_of(name), run))) for name in plan.methods
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
    order = {name: place for place, name in enumerate((*NAMES, *RIVALS))}
    scores.sort(key=lambda s: (order[s["method"]], s["n_labels"], s["run"], s["task"]))
    return scores, records
