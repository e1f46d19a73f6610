"""Claim: theta0 learned from unlabelled images makes a network better on tasks with few labels.

MNIST's ten digits are mapped at random onto two labels, 20 such tasks a run. Each method fits the
same network on the same 10 N labelled images of a task (2 N more choose the epoch) and is
tested on all 10,000 test images. Ours starts from theta0, learned once from the 60,000 images
without their labels; scratch starts from fresh weights. Everything goes through scikit-learn::

    init = MMDInitializer(random_state=0).fit(X_unlabelled)
    cross_val_score(make_pipeline(MLPClassifier(warm_start_from=init)), X, y_task, cv=splits)

Run it (a short pre-training, some minutes on two cores)::

    python benchmarks/mnist_tasks.py

and the paper's Tables 1 and 2 in full, or only a part of them::

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
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from _datasets import DATASETS, Dataset, MNISTUnavailableError
from _evaluation import LabelledData, evaluate, scaled
from _figure import draw_accuracy
from _methods import (
    METHODS,
    Contender,
    NetworkSettings,
    initializer_of,
    network_contender,
    select_names,
)
from _options import not_negative, positive
from _pretrained import Pretrained, data_digest, learn
from _provenance import provenance
from _report import as_text, build_table, pack_scores, summarize
from _rivals import RIVALS, rival_contenders
from _store import ScoreLog, write_json
from _tasks import Task, draw_rows, pretraining_seed, random_tasks

__all__ = ["main"]

HERE = Path(__file__).resolve().parent


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
    add("--dataset", choices=DATASETS, default="mnist", help="default: mnist")
    add("--data-dir", type=Path, help="a folder with MNIST's four files")
    add("--methods", nargs="+", help="names or patterns such as 'xavier/*'; see --list-methods")
    add("--list-methods", action="store_true", help="print the valid names and stop")
    add("--rivals", action="store_true", help="add rows of classifiers that are no networks")
    add("--n-labels", nargs="+", type=positive, metavar="N", help="10 N + 2 N labelled images")
    add("--tasks", type=positive, help="binary tasks a run")
    add("--runs", type=positive, help="each run has its own theta0 and its own tasks")
    add("--epochs", type=positive, help="passes of the pre-training over the unlabelled images")
    add("--n-perturbations", type=positive, help="perturbed networks a step of the pre-training")
    add(
        "--hidden-layer-sizes",
        nargs="+",
        type=positive,
        default=(392, 392, 392),
        metavar="WIDTH",
        help="default: the paper's 392 392 392",
    )
    add("--jobs", type=int, default=-1, help="processes of the evaluation; default: one a core")
    add(
        "--device",
        default="auto",
        help="of the pre-training; fine-tuning on some hundred rows is done on the CPU",
    )
    add("--output", type=Path, default=HERE / "output", help="default: benchmarks/output")
    add("--seed", type=not_negative, default=0, help="all randomness follows from it; default: 0")
    add("--quiet", action="store_true", help="no progress bars")
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


@dataclass(frozen=True)
class Bench:
    """The data, scaled once, and what every run shares."""

    dataset: Dataset
    X: np.ndarray
    data: LabelledData
    settings: NetworkSettings
    options: argparse.Namespace

    @property
    def X_unlabelled(self) -> np.ndarray:
        return self.X[: len(self.data.y_train)]

    def say(self, line: str) -> None:
        if not self.options.quiet:
            print(line, file=sys.stderr, flush=True)


def _prepare(options: argparse.Namespace, plan: Plan) -> Bench:
    def report(line: str) -> None:
        if not options.quiet:
            print(line, file=sys.stderr, flush=True)

    dataset = DATASETS[options.dataset](data_dir=options.data_dir, report=report)
    X, data = scaled(dataset)
    settings = NetworkSettings(
        hidden_layer_sizes=tuple(options.hidden_layer_sizes),
        epochs=plan.epochs,
        n_perturbations=plan.n_perturbations,
        device=options.device,
    )
    return Bench(dataset, X, data, settings, options)


def _tasks_of(plan: Plan, bench: Bench) -> list[list[Task]]:
    """The tasks of every run; ValueError now rather than after the pre-training."""
    n_classes = int(bench.dataset.y_train.max()) + 1
    seed = bench.options.seed
    tasks = [random_tasks(n_classes, plan.tasks, seed=seed, run=run) for run in range(plan.runs)]
    for n in plan.n_labels:
        draw_rows(bench.data.y_train, tasks[0][0], n, seed=seed)
    return tasks


def _contenders(plan: Plan, bench: Bench, run: int) -> tuple[list[Contender], list[dict[str, Any]]]:
    """The networks of a run, pre-trained where they are, and a record of each theta0."""
    options, contenders, learned = bench.options, [], []
    X_digest = data_digest(bench.X_unlabelled)
    for name in plan.methods:
        initializer = initializer_of(
            METHODS[name],
            bench.settings,
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
                bench.settings,
                X=bench.X,
                initializer=None if theta0 is None else theta0.initializer,
                theta0_digest=None if theta0 is None else theta0.digest,
            )
        )
    return contenders, learned


def _measure(
    plan: Plan, bench: Bench, tasks: Sequence[Sequence[Task]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
            tasks[run],
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
        tasks = _tasks_of(plan, bench)
    except (ValueError, MNISTUnavailableError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    try:
        scores, learned = _measure(plan, bench, tasks)
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
    settings |= {"hidden_layer_sizes": bench.settings.hidden_layer_sizes, "device": options.device}
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
