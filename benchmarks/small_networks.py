"""Claim: the default recipe helps users who bring a small network of their own.

Eleven small networks get 50 labels of scikit-learn's 1,797 digits. Each begins from weights learned
on all of these images without labels, and from fresh weights (30 minutes on one core). Three larger
networks learn from 5,000 images of 14 x 14 pixels, by nearest neighbours and by two views of each
image::

    python benchmarks/small_networks.py --jobs 1
    python benchmarks/small_networks.py --tasks "*, nearest neighbours" "*, two views"
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit

from data.datasets import DATASETS, Dataset, standardize
from protocol import command, methods
from protocol.own_networks import BY_LOOP, FRESH, HALVED, LEARNED, NETWORKS, GuidesLoop
from protocol.parallel import results
from protocol.store import Log, code_digest, data_digest, deciding_versions, digest_of
from reporting.tables import publish
from sklearn_mmdinit import MMDInitializer, NetClassifier

DIGITS = {"n_labels": 50, "draws": 4}
HALVED_IMAGES = {"n_labels": 50, "draws": 3}
N_HALVED = 5000  # images without labels


@dataclass(frozen=True, eq=False)
class Task:
    """The first ``n_pool`` rows are learned from; each draw has its labelled and its test rows."""

    X: np.ndarray
    y: np.ndarray
    n_pool: int
    draws: list[tuple[np.ndarray, np.ndarray]]


def splits(y: np.ndarray, seed: int, few: dict[str, int]) -> list[tuple[np.ndarray, np.ndarray]]:
    splitter = StratifiedShuffleSplit(few["draws"], train_size=few["n_labels"], random_state=seed)
    return [*splitter.split(y, y)]


def digits_task(seed: int) -> Task:
    """Every image without a label is a test image, and is learned from too."""
    X, y = load_digits(return_X_y=True)
    images = (X / 16 - 0.3).astype(np.float32).reshape(-1, 1, 8, 8)
    return Task(images, y, len(y), splits(y, seed, DIGITS))


def images_task(dataset: Dataset, seed: int) -> Task:
    """Some training images, and all test images, (n, 1, height, width): means of 2 x 2 pixels."""
    X, X_test = standardize(dataset)
    pool = np.random.default_rng(seed).permutation(len(X))[:N_HALVED]
    y, test = dataset.y_train[pool], np.arange(len(X_test)) + len(pool)
    draws = [(train, test) for train, _ in splits(y, seed, HALVED_IMAGES)]
    rows, classes = np.concatenate([X[pool], X_test]), np.concatenate([y, dataset.y_test])
    side = math.isqrt(rows.shape[1]) // 2
    images = rows.reshape(-1, 1, side, 2, side, 2).mean(axis=(3, 5))
    return Task(images, classes, len(pool), draws)


def accuracies(task: Task, classifier: Any) -> list[float]:
    """In percent, one a draw; a draw's number is its seed."""
    found = []
    for draw, (train, test) in enumerate(task.draws):
        fitted = clone(classifier).set_params(random_state=draw).fit(task.X[train], task.y[train])
        found.append(round(100.0 * float(fitted.score(task.X[test], task.y[test])), 3))
    return found


def measure(name: str, seed: int, max_iter: Any, task: Task) -> dict[str, Any]:
    """Learn weights once, and fine-tune them and fresh ones on every draw."""
    make, coherence = HALVED.get(name) or (NETWORKS[name], "auto")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = make()
    init = MMDInitializer(module=net, coherence=coherence, max_iter=max_iter, random_state=seed)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        init.fit(task.X[: task.n_pool])
    seconds = time.perf_counter() - start
    networks = {LEARNED: NetClassifier(warm_start_from=init)}
    if name in HALVED:
        networks[BY_LOOP] = GuidesLoop(init.to_module())
    networks |= {m: NetClassifier(net, **params) for m, params in FRESH.items()}
    return {
        "task": name,
        "seconds": round(seconds, 1),
        "steps": init.history_[-1]["step"],
        "warnings": sorted({str(warning.message) for warning in caught}),
        "accuracies": {name: accuracies(task, net) for name, net in networks.items()},
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add, tasks = parser.add_argument, (*NETWORKS, *HALVED)
    many = ", ".join(map(repr, tasks))
    add("--tasks", nargs="+", default=["*"], help=f"names or patterns of {many}")
    add("--max-iter", type=command.positive, help="epochs of a start; default: by the loss")
    add("--dataset", choices=DATASETS, default="mnist", help="of larger images; default: mnist")
    add("--data-dir", type=Path, help="a folder with the four IDX files of (Fashion-)MNIST")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)
    options = parser.parse_args(argv)
    options.max_iter = options.max_iter or "auto"
    log = Log(options.output / "small_networks.jsonl")
    with command.refusing(parser):
        names = methods.select_names(options.tasks, tasks, what="task")
        task_of = dict.fromkeys(names, digits_task(options.seed))
        if {*names} - {*NETWORKS}:
            dataset = DATASETS[options.dataset](options.data_dir, partial(command.say, options))
            task_of |= dict.fromkeys({*names} & {*HALVED}, images_task(dataset, options.seed))
    code = [code_digest(without=frozenset()), deciding_versions()]
    keys = {
        name: digest_of([name, options.seed, options.max_iter, data_digest(task.X),
                         data_digest(task.y), *code])
        for name, task in task_of.items()
    }  # fmt: skip
    calls = [
        (name, options.seed, options.max_iter, task_of[name])
        for name, key in keys.items()
        if key not in log.records
    ]
    with command.resumable(parser):
        for record in results(options.jobs, measure, calls):
            log.append({"key": keys[record["task"]], "jobs": options.jobs} | record)
            command.say(options, f"{record['task']}: learned in {record['seconds']:.0f} s")
    records = [{k: v for k, v in log.records[key].items() if k != "key"} for key in keys.values()]
    settings = {"tasks": names, "digits": DIGITS, "halved": HALVED_IMAGES}
    publish(
        parser,
        options,
        {"settings": settings, "records": records},
        ["small_networks", "halved_images"],
    )


if __name__ == "__main__":
    main()
