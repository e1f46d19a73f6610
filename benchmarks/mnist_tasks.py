"""Claim: theta0 learned from unlabelled images makes a network better on tasks with few labels.

MNIST's ten digits are mapped at random onto two labels, 20 such tasks a run. Each method fits the
same network on the same 10 N labelled images of a task (2 N more choose the epoch) and is
tested on all 10,000 test images. Ours starts from theta0, learned once from the 60,000 images
without their labels; scratch starts from fresh weights. Everything goes through scikit-learn::

    init = MMDInitializer(random_state=0).fit(X_unlabelled)
    cross_val_score(make_pipeline(MLPClassifier(warm_start_from=init)), X, y_task, cv=splits)

Run it (a short pre-training; 4 to 5 minutes on two cores)::

    python benchmarks/mnist_tasks.py

and the paper's Tables 1 and 2 in full (on two cores some hours: eight theta0, under half an hour
each, and 3,200 short fits), or only a part of them::

    python benchmarks/mnist_tasks.py --preset paper
    python benchmarks/mnist_tasks.py --preset paper --runs 1 --methods xavier/fcn/ours '*/scratch'

It prints the tables beside the paper's figures and writes them to the output folder, as JSON with
every single score and as a PNG. What was done is kept there: an interrupted run goes on where it
stopped, and a later one reuses the learned theta0. ``--dataset digits`` runs the same job without
a download; those 1,297 images of 8 x 8 pixels are too easy for a gain to show.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import joblib

from data.datasets import DatasetUnavailableError
from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate
from protocol.methods import (
    METHODS,
    Contender,
    NetworkSettings,
    initializer_of,
    network_contender,
    select_names,
)
from protocol.options import add_task_options, positive
from protocol.pretrained import Pretrained, data_digest, learn
from protocol.provenance import provenance
from protocol.rivals import RIVALS, rival_contenders
from protocol.store import ScoreLog, write_json
from protocol.tasks import pretraining_seed
from report.accuracy_figure import draw_accuracy
from report.table import as_text
from report.task_tables import build_table, pack_scores, summarize

__all__ = ["main"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    methods: tuple[str, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int
    epochs: int
    n_perturbations: int


# The quick plan pre-trains for two passes with fewer perturbed networks a step than the paper.
PRESETS = {
    "quick": Plan(("xavier/fcn/ours", "xavier/fcn/scratch"), (5, 10), 20, 1, 2, 64),
    "paper": Plan(tuple(METHODS), (5, 10, 20, 40), 20, 4, 5, 256),
}

# MNIST's passes have 1,875 steps, those of the 1,297 digits 40: so many passes stand for one.
PASSES_FOR_ONE = {"mnist": 1, "digits": 20}

TABLES = ("accuracy", "task_std", "gain")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--preset", choices=PRESETS, default="quick", help="default: quick")
    add("--methods", nargs="+", help="names or patterns such as 'xavier/*'; see --list-methods")
    add("--list-methods", action="store_true", help="print the valid names and stop")
    add("--rivals", action="store_true", help="add rows of classifiers that are no networks")
    add("--epochs", type=positive, help="passes of the pre-training over the unlabelled images")
    add("--n-perturbations", type=positive, help="perturbed networks a step of the pre-training")
    add_task_options(parser)
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    """The preset with what the command line changes; ValueError for an unknown method."""
    plan = PRESETS[options.preset]
    plan = replace(plan, epochs=plan.epochs * PASSES_FOR_ONE[options.dataset])
    given = {
        "n_labels": tuple(sorted(set(options.n_labels))) if options.n_labels else None,
        "methods": tuple(select_names(options.methods, METHODS)) if options.methods else None,
        "tasks": options.tasks,
        "runs": options.runs,
        "epochs": options.epochs,
        "n_perturbations": options.n_perturbations,
    }
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def _prepare(options: argparse.Namespace, plan: Plan) -> Bench:
    dataset, X, data = load_scaled(options)
    network = NetworkSettings(
        hidden_layer_sizes=tuple(options.hidden_layer_sizes),
        epochs=plan.epochs,
        n_perturbations=plan.n_perturbations,
        device=options.device,
    )
    tasks = tasks_of_runs(
        data.y_train, plan.n_labels, n_tasks=plan.tasks, n_runs=plan.runs, seed=options.seed
    )
    return Bench(dataset, X, data, network, tasks, options)


def _contenders(plan: Plan, bench: Bench, run: int) -> tuple[list[Contender], list[dict[str, Any]]]:
    """The networks of a run, pre-trained where they are, and a record of each theta0."""
    options, contenders, learned = bench.options, [], []
    X_digest = data_digest(bench.X_unlabelled)
    for name in plan.methods:
        initializer = initializer_of(
            METHODS[name],
            bench.network,
            random_state=pretraining_seed(run, seed=options.seed),
            verbose=0 if options.quiet else 1,
        )
        theta0: Pretrained | None = None
        if initializer is not None:
            bench.say(f"run {run}: learning theta0 of {name}, {plan.epochs} passes")
            folder = options.output / "theta0"
            theta0 = learn(
                initializer, bench.X_unlabelled, name=name, folder=folder, X_digest=X_digest
            )
            bench.say(f"run {run}: {'reused' if theta0.reused else 'kept'} {theta0.path.name}")
            learned.append({"method": name, "run": run} | theta0.record())
        contenders.append(
            network_contender(
                METHODS[name],
                bench.network,
                X=bench.X,
                initializer=None if theta0 is None else theta0.initializer,
                theta0_digest=None if theta0 is None else theta0.digest,
            )
        )
    return contenders, learned


def _measure(plan: Plan, bench: Bench) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
    for run in range(plan.runs):
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
    order = {name: place for place, name in enumerate((*METHODS, *RIVALS))}
    scores.sort(key=lambda s: (order[s["method"]], s["n_labels"], s["run"], s["task"]))
    return scores, learned


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the tables were printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_methods:
        print("\n".join(METHODS))
        return 0
    started = time.perf_counter()
    try:
        plan = _plan(options)
        bench = _prepare(options, plan)
    except (ValueError, DatasetUnavailableError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    try:
        scores, learned = _measure(plan, bench)
    except KeyboardInterrupt:
        print(f"\n{parser.prog}: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    summaries = summarize(scores)
    paper = bench.dataset.name == "mnist"
    tables = [build_table(kind, summaries, paper=paper) for kind in TABLES]
    for table in tables:
        if table.rows:  # no gain without a pair, no std over one task
            print(as_text(table), end="\n\n")
    seconds = round(time.perf_counter() - started, 1)
    settings = asdict(plan) | {"seed": options.seed, "preset": options.preset}
    settings |= {"hidden_layer_sizes": bench.network.hidden_layer_sizes, "device": options.device}
    results = {
        "claim": (__doc__ or "").splitlines()[0],
        "dataset": {"name": bench.dataset.name, "source": bench.dataset.source},
        "settings": settings,
        "seconds_of_this_call": seconds,
        **provenance(),
        "summary": [asdict(summary) for summary in summaries],
        "theta0": learned,
        "scores": pack_scores(scores),
    }
    path = options.output / f"{bench.dataset.name}_tasks.json"
    write_json(path, results)
    title = f"{bench.dataset.name}: {plan.tasks * plan.runs} random binary tasks, 95% intervals"
    print(draw_accuracy(scores, path.with_suffix(".png"), title=title))
    print(f"{path} written, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
