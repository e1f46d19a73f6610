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
several draws of them, and no others. ``--draw balanced`` takes as many of each digit for a binary
task too, where the default takes any.

``--augmentation digits`` lets coherence see both ends of its walks rotated, shifted and stretched a
little (``clothes`` less so, but mirrored too), and adds rivals to ``--rivals`` that get changed
copies of the labelled images. With ``--rounds 2`` it is learned a second time, its neighbours those
among the activations of the first. With ``--neighbors gradients`` neighbours are searched among the
images' oriented gradients, and there are rivals that see these; ``--separation`` says how finely it
tells images apart. ``--kernels mean`` is for ``ours``: another reading of the paper's L_uni.

With ``--backend dask`` or ``ray`` other machines help, see ``benchmarks/results/README.md``::

    python benchmarks/mnist_tasks.py --preset paper --backend dask --address tcp://HOST:8786

``--network convnet`` does it all with a small convolutional network, with methods of its own:
``convnet/ours`` and so on. Its pre-training takes longer; an hour on two cores is enough for::

    python benchmarks/mnist_tasks.py --network convnet --preset paper --runs 2 --epochs 1 \
        --n-perturbations 64

It prints the tables beside the paper's figures and writes them to the output folder, as JSON with
every single score and as a PNG. What was done is kept there: an interrupted run goes on where it
stopped, and a later one reuses the learned theta0. (The exit status is 130 after Ctrl-C and 75
after the loss of a cluster.) ``--dataset fashion-mnist`` takes other
images. ``--dataset digits`` runs the same job without a download; those 1,297 images of 8 x 8
pixels are too easy for a gain of the paper's objective to show.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from data.datasets import DatasetUnavailableError
from engines.choice import add_engine_options, engine_of
from engines.engine import EngineLostError, EngineUnavailableError
from protocol.augmentations import AUGMENTATIONS
from protocol.embeddings import EMBEDDINGS
from protocol.kernels import add_kernels_option, with_kernels
from protocol.methods import NetworkSettings
from protocol.network_kinds import NETWORK_KINDS
from protocol.options import add_task_options, positive, positive_number
from protocol.provenance import provenance
from protocol.store import write_json
from protocol.task_plan import PRESETS, TEN_WAY_DRAWS, Plan, plan_of
from protocol.tasks import DRAWS
from protocol.tasks_bench import measure, prepare
from reporting.accuracy_figure import draw_accuracy
from reporting.against_table import against, against_records, against_table
from reporting.paper import tasks_compare_with_paper
from reporting.table import as_text
from reporting.task_tables import build_table, pack_scores, summarize

__all__ = ["main"]

# What sysexits.h has for a failure that need not happen again.
CLUSTER_LOST = 75

TABLES = ("accuracy", "task_std", "gain")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--preset", choices=PRESETS, default="quick", help="default: quick")
    add("--methods", nargs="+", help="names or patterns such as 'xavier/*'; see --list-methods")
    add(
        "--network",
        choices=list(NETWORK_KINDS),
        default="mlp",
        help="mlp: the paper's perceptron; convnet: two convolutions and two linear layers, whose "
        "methods --network convnet --list-methods names; default: mlp",
    )
    add("--list-methods", action="store_true", help="print the valid names and stop")
    add(
        "--rivals",
        nargs="*",
        metavar="RIVAL",
        help="add other ways to use the unlabelled images: alone those without a network, which "
        "take seconds, with --neighbors gradients two more, and with --augmentation some that take "
        "minutes; or names or patterns such as lsuv or '*'",
    )
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
    add(
        "--draw",
        choices=DRAWS,
        default="uniform",
        help="labelled images of a binary task. uniform: 10 N to train on and 2 N to validate "
        "with, any of them; balanced: N of each class to train on, and 2 N, as evenly as can be, "
        "to validate with; default: uniform",
    )
    add(
        "--augmentation",
        choices=list(AUGMENTATIONS),
        default="none",
        help="small random changes of images that ours+coherence learns not to mind. digits: "
        "rotations, shifts, stretches and shears; clothes: smaller ones, and mirror images; "
        "default: none",
    )
    add(
        "--neighbors",
        choices=list(EMBEDDINGS),
        default="pixels",
        help="where ours+coherence searches neighbours: among the pixels, or among histograms of "
        "oriented gradients; default: pixels",
    )
    add(
        "--separation",
        type=positive_number,
        default=NetworkSettings.separation,
        help="how finely ours+coherence tells images apart; default: %(default)s",
    )
    add(
        "--rounds",
        type=positive,
        default=1,
        help="times that theta0 of ours+coherence is learned, each time with neighbours among the "
        "activations of the time before; default: 1",
    )
    add_kernels_option(parser)
    add_task_options(parser, first_run=0, precision=True)
    add_engine_options(parser)
    return parser


def _stem(dataset: str, plan: Plan) -> str:
    """Name of the results: what settings were chosen by must not overwrite what is reported."""
    name = dataset if plan.network == "mlp" else f"{dataset}_{plan.network}"
    name = f"{name}_tasks" if plan.classes == 2 else f"{name}_ten_way"
    if plan.draw != "uniform":
        name = f"{name}_{plan.draw}"
    if plan.augmentation != "none":
        name = f"{name}_augmented_as_{plan.augmentation}"
    if plan.neighbors != "pixels":
        name = f"{name}_by_{plan.neighbors}"
    if plan.separation != NetworkSettings.separation:
        name = f"{name}_separation_{plan.separation:g}"
    name = with_kernels(name, plan.kernels)
    if plan.rounds > 1:
        name = f"{name}_{plan.rounds}_rounds"
    return name if plan.first_run == 0 else f"{name}_from_run_{plan.first_run}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the tables were printed."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list_methods:
        print("\n".join(NETWORK_KINDS[options.network].names))
        return 0
    started = time.perf_counter()
    try:
        plan = plan_of(options)
        engine = engine_of(options.backend, options.address, options.jobs)
        bench = prepare(options, plan)
    except (ValueError, DatasetUnavailableError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    goes_on = "the same command goes on from here"
    try:
        with engine:
            where = engine.describe()
            scores, learned = measure(plan, bench, engine)
    except KeyboardInterrupt:
        print(f"\n{parser.prog}: stopped; {goes_on}", file=sys.stderr)
        return 130
    except EngineUnavailableError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except EngineLostError as error:
        print(f"\n{parser.prog}: {error}; {goes_on}", file=sys.stderr)
        return CLUSTER_LOST
    summaries = summarize(scores)
    differences = against(scores)
    seconds = round(time.perf_counter() - started, 1)
    settings = asdict(plan) | {"seed": options.seed, "preset": options.preset}
    settings |= NETWORK_KINDS[plan.network].describe(bench.network, bench.X.shape[1])
    settings |= {"device": options.device, "precision": options.precision}
    results = {
        "claim": (__doc__ or "").splitlines()[0],
        "dataset": {"name": bench.dataset.name, "source": bench.dataset.source},
        "settings": settings,
        "backend": where,
        "seconds_of_this_call": seconds,
        **provenance(),
        "summary": [asdict(summary) for summary in summaries],
        "against": against_records(differences),
        "theta0": learned,
        "scores": pack_scores(scores),
    }
    paper = tasks_compare_with_paper(results)
    tables = [build_table(kind, summaries, paper=paper) for kind in TABLES]
    tables.append(against_table(differences))
    for table in tables:
        if table.rows:  # no gain without a pair, no std over one task
            print(as_text(table), end="\n\n")
    path = options.output / f"{_stem(bench.dataset.name, plan)}.json"
    write_json(path, results)
    what = "random binary tasks" if plan.classes == 2 else "draws of labelled images"
    title = f"{bench.dataset.name}: {plan.tasks * plan.runs} {what}, 95% intervals"
    print(draw_accuracy(scores, path.with_suffix(".png"), title=title))
    print(f"{path} written, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
