"""Claim: with few labels pairs of walks on a graph teach more than two views of each image.

The paper's perceptron is learned from all training images without labels: by coherence on walks
along a graph or on two views of each image, by NT-Xent (SimCLR) and VICReg on the same views, and
by NT-Xent on the very pairs of the walks. All have the same augmentation, mini-batches and number
of steps. A logistic regression on the last hidden activations gets N labelled images of each of
ten classes, or 12 N of two random groups of these (a run takes 20 minutes on one core)::

    python benchmarks/self_supervised.py --jobs 1 --dataset fashion-mnist
    python benchmarks/self_supervised.py --jobs 1 --classes 2 --n-labels 5 10 20 40
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sklearn.base import clone

from protocol import command, methods
from protocol.evaluation import Bench, prepare_bench
from protocol.methods import FEATURES_THETA0, Contender, features_contender, initializer_of
from protocol.store import Log
from protocol.theta0s import Pretrained
from reporting.results import pack_scores
from reporting.tables import publish
from rivals.self_supervised import PairLearner

FORM = 1  # to be raised where a rival changes otherwise than by a parameter
OURS, VIEWS = "ours", "ours on two views, without a graph"


@dataclass(frozen=True)
class Setting:
    """What was chosen of a rival: see :class:`PairLearner`, and the regression on its features."""

    loss: str
    on_graph: bool
    sharpness: float
    rate: float
    C: float


# By the mean over N = 1 and 10 on held-out images: ``self-supervised-choice.json``.
CHOSEN = {
    "NT-Xent on two views (SimCLR)": Setting("NT-Xent", False, 0.5, 4e-3, C=100.0),
    "VICReg on two views": Setting("VICReg", False, 1.0, 1e-3, C=100.0),
    "NT-Xent on pairs of ours": Setting("NT-Xent", True, 0.5, 4e-3, C=10.0),
}
METHODS = (OURS, VIEWS, *CHOSEN)
# What ours got of each data set in other runs, see the report.
IMAGES = {"fashion-mnist": {"augmentation": "clothes", "separation": 4.0}}


def _learned(bench: Bench, learner: Any, name: str) -> tuple[dict[str, Any], Pretrained]:
    """Something learned, and its record with the seconds of all cores that it had."""
    log, before = Log(bench.options.output / "self_supervised.jsonl"), time.process_time()
    learned = bench.learn(learner, name)
    if learned.digest not in log.records:
        seconds = learned.seconds and round(time.process_time() - before, 1)
        log.append({"key": learned.digest, "cpu_seconds": seconds})
    return learned.record() | {"cpu_seconds": log.records[learned.digest]["cpu_seconds"]}, learned


def contenders_of(
    bench: Bench, run: int, names: Sequence[str], records: list[dict[str, Any]]
) -> Iterator[Contender]:
    """Features by each method; what was learned for them goes into the records."""
    seed, n_pixels = bench.seed_of(run), bench.X.shape[1]
    ours: Any = initializer_of(FEATURES_THETA0, bench.network, n_pixels=n_pixels, random_state=seed)
    views = clone(ours).set_params(coherence__n_neighbors=0, coherence__embedding=None)
    for name in names:
        if name in (OURS, VIEWS):
            about, learned = _learned(bench, ours if name == OURS else views, name)
            steps = learned.initializer.history_[-1]["step"]
            records.append({"method": name, "run": run, "steps": steps} | about)
            yield features_contender(name, bench.X, learned)
            continue
        setting = CHOSEN[name]
        learner = PairLearner(
            (ours if setting.on_graph else views).coherence,
            setting.loss,
            setting.sharpness,
            setting.rate,
            records[0]["steps"],
            bench.network.hidden_layer_sizes,
            seed,
        )
        about, learned = _learned(bench, learner, f"{setting.loss}-{FORM}")
        about |= {"method": name, "run": run, "steps": learner.steps}
        records.append(about | asdict(setting))
        yield features_contender(name, bench.X, learned, setting.C)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add = parser.add_argument
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {', '.join(METHODS)}")
    add("--coherent-epochs", type=command.positive, help="default: as many as ours takes itself")
    add("--classes", type=int, choices=(2, 10), default=10, help="of the tasks; default: 10")
    command.add_task_options(parser, first_run=8, runs=3, tasks=10, n_labels=(1, 4, 10, 100))
    options = parser.parse_args(argv)
    vars(options).update({"neighbors": "gradients", "augmentation": "digits"})
    vars(options).update({"separation": 2.0} | IMAGES.get(options.dataset, {}))
    with command.refusing(parser):
        names = methods.select_names(options.methods, METHODS)
        names = [OURS, *(name for name in names if name != OURS)]
        bench = prepare_bench(options)
    bench = replace(bench, network=replace(bench.network, classes=10))  # one theta0 for all tasks
    records: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    with command.resumable(parser):
        for run in bench.tasks:
            for contender in contenders_of(bench, run, names, records):
                scores += bench.evaluate({run: [contender]}, title=f"run {run}: {contender.name}")
    results = {
        "settings": {"methods": names},
        "dataset": bench.dataset.about,
        "theta0": records,
        "scores": pack_scores(scores),
    }
    publish(parser, options, results, ["self_supervised", "above_rivals"])


if __name__ == "__main__":
    main()
