"""Claim: theta0 learned from unlabelled images makes a network better on tasks with few labels.

MNIST's ten digits are mapped at random onto two labels, 20 such tasks a run. Each method fits the
same network on the same 10 N labelled images of a task (2 N more choose the epoch) and is
tested on all 10,000 test images. Ours starts from theta0, learned once from the 60,000 images
without their labels; scratch starts from fresh weights. Everything goes through scikit-learn::

    init = MMDInitializer(random_state=0).fit(X_unlabelled)
    cross_val_score(make_pipeline(MLPClassifier(warm_start_from=init)), X, y_task, cv=splits)

Run it (short pre-trainings; 5 to 6 minutes on two cores)::

    python benchmarks/mnist_tasks.py

and the paper's Tables 1 and 2 in full (on two cores some hours: eight theta0, under half an hour
each, and 3,200 short fits), or only a part of them, or what coherence adds::

    python benchmarks/mnist_tasks.py --preset paper
    python benchmarks/mnist_tasks.py --preset paper --runs 1 --methods xavier/fcn/ours '*/scratch'
    python benchmarks/mnist_tasks.py --preset paper --rivals --methods '*/fcn/scratch' \
        '*/ours+coherence' features+logistic

``ours`` is the paper's objective, ``ours+coherence`` the same with a fourth term, by which
neighbouring images get the same label near theta0, and ``features+logistic`` a logistic
regression on the last hidden layer of that theta0, with no fine-tuning at all. ``--classes 10``
asks for the digits themselves in place of binary tasks: N labelled images of each digit,
several draws of them, and no others.

It prints the tables beside the paper's figures and writes them to the output folder, as JSON with
every single score and as a PNG. What was done is kept there: an interrupted run goes on where it
stopped, and a later one reuses the learned theta0. ``--dataset fashion-mnist`` takes other
images. ``--dataset digits`` runs the same job without a download; those 1,297 images of 8 x 8
pixels are too easy for a gain of the paper's objective to show.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import joblib
from sklearn.base import BaseEstimator

from data.datasets import DatasetUnavailableError
from protocol.bench import Bench, load_scaled, tasks_of_runs
from protocol.evaluation import evaluate
from protocol.methods import (
    FEATURES,
    FEATURES_THETA0,
    METHODS,
    NAMES,
    PAPER_METHODS,
    Contender,
    NetworkSettings,
    features_contender,
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
from reporting.accuracy_figure import draw_accuracy
from reporting.against_table import against, against_records, against_table
from reporting.table import as_text
from reporting.task_tables import build_table, pack_scores, summarize

__all__ = ["main"]


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    ``epochs`` and ``n_perturbations`` are the paper's objective's; ``coherent_passes`` are
    those with coherence, None where it decides itself.
    """

    methods: tuple[str, ...]
    n_labels: tuple[int, ...]
    tasks: int
    runs: int
    epochs: int
    n_perturbations: int
    coherent_passes: int | None = None
    first_run: int = 0
    classes: int = 2


QUICK_METHODS = ("xavier/fcn/ours", FEATURES_THETA0, FEATURES, "xavier/fcn/scratch")

# The quick plan pre-trains for two passes with fewer perturbed networks a step than the paper.
PRESETS = {
    "quick": Plan(QUICK_METHODS, (5, 10), 20, 1, 2, 64, coherent_passes=4),
    "paper": Plan(PAPER_METHODS, (5, 10, 20, 40), 20, 4, 5, 256),
}

# Draws of labelled rows where there is one task, which has all classes.
TEN_WAY_DRAWS = 10

# MNIST's passes have 1,875 steps, those of the 1,297 digits 40: so many passes stand for one.
PASSES_FOR_ONE = {"mnist": 1, "fashion-mnist": 1, "digits": 20}

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
    add(
        "--coherent-epochs",
        type=positive,
        help="passes of the pre-training with coherence; default: as many as it takes itself, "
        "and four in the quick preset",
    )
    add(
        "--classes",
        type=int,
        choices=(2, 10),
        default=2,
        help="2: random binary tasks; 10: the classes themselves, N labelled images of each and "
        f"none to validate with, {TEN_WAY_DRAWS} draws a run; default: 2",
    )
    add_task_options(parser, first_run=0)
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    """The preset with what the command line changes; ValueError for an unknown method."""
    plan = PRESETS[options.preset]
    longer, quick = PASSES_FOR_ONE[options.dataset], plan.coherent_passes
    plan = replace(plan, first_run=options.first_run, classes=options.classes)
    plan = replace(plan, epochs=plan.epochs * longer)
    if quick is not None:
        plan = replace(plan, coherent_passes=quick * longer)
    if plan.classes != 2:
        plan = replace(plan, tasks=TEN_WAY_DRAWS)
    given = {
        "n_labels": tuple(sorted(set(options.n_labels))) if options.n_labels else None,
        "methods": tuple(select_names(options.methods, NAMES)) if options.methods else None,
        "tasks": options.tasks,
        "runs": options.runs,
        "epochs": options.epochs,
        "coherent_passes": options.coherent_epochs,
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


def _stem(dataset: str, plan: Plan) -> str:
    """Name of the results: what settings were chosen by must not overwrite what is reported."""
    name = f"{dataset}_tasks" if plan.classes == 2 else f"{dataset}_ten_way"
    return name if plan.first_run == 0 else f"{name}_from_run_{plan.first_run}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the tables were printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_methods:
        print("\n".join(NAMES))
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
    # The paper's figures are those of MNIST's binary tasks and of nothing else.
    paper = bench.dataset.name == "mnist" and plan.classes == 2
    differences = against(scores)
    tables = [build_table(kind, summaries, paper=paper) for kind in TABLES]
    tables.append(against_table(differences))
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
        "against": against_records(differences),
        "theta0": learned,
        "scores": pack_scores(scores),
    }
    path = options.output / f"{_stem(bench.dataset.name, plan)}.json"
    write_json(path, results)
    what = "random binary tasks" if plan.classes == 2 else "draws of labelled images"
    title = f"{bench.dataset.name}: {plan.tasks * plan.runs} {what}, 95% intervals"
    print(draw_accuracy(scores, path.with_suffix(".png"), title=title))
    print(f"{path} written, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
