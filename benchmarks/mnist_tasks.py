"""Claim: theta0 learned from unlabelled images makes a network better on tasks with few labels.

MNIST's ten digits are mapped at random onto two labels, 20 such tasks a run. Each method fits the
same network on the same 10 N labelled images of a task (2 N more choose the epoch). Ours starts
from theta0, learned from all 60,000 images without labels. Everything goes through scikit-learn::

    init = MMDInitializer(random_state=0).fit(X_unlabelled)
    cross_val_score(make_pipeline(MLPClassifier(warm_start_from=init)), X, y_task, cv=splits)

Run it (short pre-trainings; five to eight minutes on two cores), then the paper's Tables 1 and 2 in
full (some hours: eight theta0, 28 to 38 minutes each), or what coherence adds::

    python benchmarks/mnist_tasks.py
    python benchmarks/mnist_tasks.py --preset paper
    python benchmarks/mnist_tasks.py --preset paper --rivals label-spreading \
        --methods '*/fcn/scratch' '*/ours+coherence' features+logistic

What was done is kept in the output folder: an interrupted run goes on where it stopped, and a later
one reuses the learned theta0. ``--dataset digits`` needs no download and is for trying the command
out: its images are too few and too easy for a gain of the paper's objective to show.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from protocol import command, methods
from protocol.contenders import ALL_RIVALS, Rivals, select_rivals
from protocol.evaluation import prepare_bench
from reporting.results import pack_scores
from reporting.tables import publish

# The quick plan pre-trains for one epoch with fewer perturbed networks a step than the paper; a
# ConvNet, whose step takes four times as long as the perceptron's, with fewer still. That was
# chosen on run 0, so it is shown on another.
QUICK = {"n_labels": (5, 10), "tasks": 20, "runs": 1, "first_run": 8, "coherent_epochs": 4}
PAPER = {"n_labels": (5, 10, 20, 40), "tasks": 20, "runs": 4, "first_run": 0}
PAPER |= {"epochs": 5, "n_perturbations": 256}
QUICK_METHODS = ("xavier/fcn/ours", methods.FEATURES_THETA0, methods.FEATURES, methods.SCRATCH)
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "quick": {
        "mlp": QUICK | {"methods": QUICK_METHODS, "epochs": 1, "n_perturbations": 64},
        "convnet": QUICK | {"methods": methods.CONVNET_NAMES, "epochs": 1, "n_perturbations": 32},
    },
    "paper": {
        "mlp": PAPER | {"methods": methods.PAPER_METHODS},
        "convnet": PAPER | {"methods": methods.CONVNET_NAMES},
    },
}

TEN_WAY_DRAWS = 10  # of labelled rows where there is one task, which has all classes


def _parser() -> argparse.ArgumentParser:
    parser = command.command_parser(__file__, __doc__)
    add, number = parser.add_argument, command.positive
    add("--preset", choices=PRESETS, default="quick", help="default: quick")
    names = "names or patterns such as 'xavier/*'; a wrong one is answered with the valid ones"
    add("--methods", nargs="+", help=names)
    network = "the paper's perceptron, or two convolutions and two linear layers; default: mlp"
    add("--network", choices=methods.NAMES_OF, default="mlp", help=network)
    rivals = "names or patterns such as rbf-svm or '*'; default: none"
    add("--rivals", nargs="+", default=(), metavar="RIVAL", help=rivals)
    add("--epochs", type=number, help="epochs of the pre-training over the unlabelled images")
    add("--n-perturbations", type=number, help="perturbed networks a step of the pre-training")
    coherent = "epochs with coherence; default: as many as it takes itself, in quick four"
    add("--coherent-epochs", type=number, help=coherent)
    classes = "2: binary tasks; 10: N labelled images of each class, ten draws a run; default: 2"
    add("--classes", type=int, choices=(2, 10), default=2, help=classes)
    changes = "augmentation of the images in ours+coherence; default: none"
    add("--augmentation", choices=methods.AUGMENTATIONS, default="none", help=changes)
    neighbors = "features in which ours+coherence searches neighbours; default: pixels"
    add("--neighbors", choices=methods.EMBEDDINGS, default="pixels", help=neighbors)
    add("--separation", type=float, default=2.0, help="of ours+coherence; default: 2.0")
    command.add_task_options(parser, first_run=None)
    return parser


def plan_of(options: argparse.Namespace) -> argparse.Namespace:
    """The preset with what the command line changes; ValueError where parts do not fit."""
    preset = dict(PRESETS[options.preset][options.network])
    if options.classes != 2:
        preset["tasks"] = TEN_WAY_DRAWS
    valid = methods.NAMES_OF[options.network]
    given = vars(options) | {
        "rivals": select_rivals(options.rivals, gradients=options.neighbors == "gradients"),
        "methods": options.methods and methods.select_names(options.methods, valid),
    }
    chosen = {name: preset.get(name) if v is None else v for name, v in given.items()}
    return argparse.Namespace(**chosen)


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    options = parser.parse_args(argv)
    with command.refusing(parser):
        plan = plan_of(options)
        bench = prepare_bench(plan)
    X, contenders, records = methods.rows_for(plan.network, bench.X), {}, []
    with command.resumable(parser):
        of_all_runs = [*map(Rivals(bench).contender, plan.rivals)]
        for run in bench.tasks:
            learned: dict[str, Any] = {}
            for name in dict.fromkeys(map(methods.theta0_of, plan.methods)):
                initializer = methods.initializer_of(
                    name, bench.network, n_pixels=bench.X.shape[1], random_state=bench.seed_of(run)
                )
                if initializer is not None:
                    learned[name] = bench.learn(initializer, name, X[: len(bench.X_unlabelled)])
                    records.append({"method": name, "run": run} | learned[name].record())
            contenders[run] = of_all_runs + [
                methods.contender_of(name, bench.network, X, learned.get(methods.theta0_of(name)))
                for name in plan.methods
            ]
        scores = bench.evaluate(contenders)
    names = (*methods.NAMES_OF[plan.network], *ALL_RIVALS)
    scores.sort(key=lambda s: (names.index(s["method"]), s["n_labels"], s["run"], s["task"]))
    results = {
        "dataset": bench.dataset.about,
        "settings": vars(plan),
        "theta0": records,
        "scores": pack_scores(scores),
    }
    publish(parser, options, results, ("accuracy", "task_std", "gain", "against"))


if __name__ == "__main__":
    main()
