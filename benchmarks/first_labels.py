"""Claim: labels of the examples nearest to k-means centres of features are worth many random ones.

No example has a label yet. A rule chooses which ones to label, 1, 2 and 5 times the number of
classes. Then comes the accuracy on test examples (of the digits: on the others), of a logistic
regression on the pre-trained features of images or of EmbeddingClassifier on embeddings. k-means of
features was chosen on digits and on three seeds of banking77; the other sets were measured once,
after that (40 minutes on one core, of which the digits take two)::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/first_labels.py --data-dir data
    python benchmarks/first_labels.py --sets digits --seeds 3

The folder has the texts and photographs as embeddings.py says.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from data.datasets import DATASETS, standardize
from protocol import command
from protocol.embedded import embedded
from protocol.methods import IMAGES, select_names
from protocol.parallel import threads
from protocol.store import Log, code_digest, data_digest, deciding_versions, digest_of
from protocol.tasks import seed_of
from protocol.theta0s import learn, path_of
from reporting.results import pack_draws
from reporting.tables import publish
from rivals import first_examples as rules
from sklearn_mmdinit import EmbeddingClassifier, MMDInitializer, OrientedGradients

FORM = 1  # to be raised where what is measured changes otherwise than by a parameter
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "digits": ({"hidden_layer_sizes": (64, 64), "coherence": "auto"}, 10),
    "mnist": ({"coherence": IMAGES}, 1),
}
"""Of each set of images what the initializer is given, and how many theta0s the seeds share."""
EMBEDDINGS = ("banking77", "clinc150", "scenes")
N_IMAGES, N_EMBEDDINGS = 10_000, 3_000  # to choose from; each seed draws its own embeddings
BUDGETS, OF_RANDOM = (1, 2, 5), (1, 2, 3, 5, 10, 20)
"""Labels, in multiples of the number of classes; more to say how many a better choice saves."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Examples to choose from: rows of several kinds, and the accuracy that some labels give."""

    spaces: dict[str, np.ndarray]
    y: np.ndarray
    accuracy: Callable[[np.ndarray], float]
    key: str


CHOICES: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "random": ("features", rules.at_random),
    "k-means of rows": ("rows", rules.nearest_to_centres),
    "k-means of HOG features": ("HOG", rules.nearest_to_centres),
    "k-means": ("features", rules.nearest_to_centres),
    "k-medoids": ("features", rules.medoids),
    "TypiClust": ("features", rules.typiclust),
    "ProbCover": ("few features", rules.probcover),
}
"""By name the rows, and the rule; ProbCover compares all pairs, which takes too long on MNIST."""


def of_network(name: str, options: argparse.Namespace, seed: int, say: Any) -> Pool:
    """Images, and features of a network that is pre-trained on them."""
    arguments, n_theta0s = NETWORKS[name]
    theta0 = seed % n_theta0s
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X = X_test = X.astype(np.float32) / 16
        y_test = y
    else:
        data = DATASETS[name](options.data_dir, say)
        X, X_test = standardize(data)
        some = np.random.default_rng(seed_of(0, name)).permutation(len(X))[:N_IMAGES]
        X, y, y_test = X[some], data.y_train[some], data.y_test
    init = MMDInitializer(n_classes=10, random_state=theta0, verbose=0, **arguments)
    path = path_of(init, name, options.output / "theta0", data_digest(X))
    if not path.exists():
        say(f"{name}: pre-training theta0 {theta0}")
    learned = learn(path, init, X).initializer
    features, test = learned.transform(X), learned.transform(X_test)

    def accuracy(chosen: np.ndarray) -> float:
        clf = LogisticRegression(C=100, max_iter=1000).fit(features[chosen], y[chosen])
        others = np.setdiff1d(np.arange(len(test)), chosen) if X is X_test else slice(None)
        return float(clf.score(test[others], y_test[others]))

    own = {"few features": features}
    if name == "mnist":
        own = {"HOG": OrientedGradients().fit_transform(X)}
    key = digest_of([FORM, path.name])
    return Pool({"rows": X, "features": features} | own, y, accuracy, key)


def of_encoder(name: str, options: argparse.Namespace, seed: int, say: Any) -> Pool:
    """A part of a set of embeddings: their encoder is what was pre-trained."""
    folder = options.output / "embeddings"
    whole, _ = embedded(name, options.data_dir, folder, 0, say, progress=not options.quiet)
    some = np.random.default_rng(seed_of(seed, name)).permutation(len(whole.y))[:N_EMBEDDINGS]
    X, y = whole.X[some], whole.y[some]

    def accuracy(chosen: np.ndarray) -> float:
        labels = np.full(len(y), -1)
        labels[chosen] = y[chosen]
        return float(EmbeddingClassifier().fit(X, labels).score(whole.X_test, whole.y_test))

    of = [FORM, name, N_EMBEDDINGS, whole.X_digest, whole.test_digest, deciding_versions()]
    key = digest_of([*of, code_digest(without=frozenset())])
    return Pool(dict.fromkeys(["features", "few features"], X), y, accuracy, key)


def outcomes(pool: Pool, choice: str, seed: int) -> Iterator[dict[str, Any]]:
    """Of each budget the accuracy, and how many classes (%) have a label."""
    (space, rule), n_classes = CHOICES[choice], len(np.unique(pool.y))
    for multiple in OF_RANDOM if choice == "random" else BUDGETS:
        if 2 * multiple * n_classes > len(pool.y):
            continue
        with warnings.catch_warnings():
            # ProbCover's about its radius, and scikit-learn's about many classes of few rows.
            warnings.simplefilter("ignore")
            chosen = rule(pool.spaces[space], multiple * n_classes, n_classes, seed)
            accuracy = round(pool.accuracy(chosen), 6)
        found = round(100 * len(np.unique(pool.y[chosen])) / n_classes, 2)
        yield {"n_labels": multiple * n_classes, "accuracy": accuracy, "found": found}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    add, sets, many = parser.add_argument, [*NETWORKS, *EMBEDDINGS], ", ".join(map(repr, CHOICES))
    add("--sets", nargs="+", default=["*"], help=f"names or patterns of {' '.join(sets)}")
    add("--choices", nargs="+", default=["*"], help=f"names or patterns of {many}")
    add("--seeds", type=command.positive, default=10, help="default: 10")
    add("--data-dir", type=Path, help="a folder with the texts, photographs and images")
    command.add_output_options(parser)
    options = parser.parse_args(argv)
    log, scores = Log(options.output / "first_labels.jsonl"), []
    with command.refusing(parser), command.resumable(parser), threads(1):
        choices = select_names(options.choices, CHOICES, what="choice")
        found = select_names(options.sets, sets, what="set")
        seeds = range(options.seed, options.seed + options.seeds)
        cells = [(name, seed) for name in found for seed in seeds]
        for name, seed in tqdm(cells, unit="seed", disable=options.quiet):
            of = of_network if name in NETWORKS else of_encoder
            pool = of(name, options, seed, partial(command.say, options))
            for choice in (each for each in choices if CHOICES[each][0] in pool.spaces):
                key = digest_of([pool.key, seed, choice])
                if key not in log.records:
                    log.append({"key": key, "cells": [*outcomes(pool, choice, seed)]})
                same = {"set": name, "draw": seed, "method": choice}
                scores += [same | cell for cell in log.records[key]["cells"]]
    packed = pack_draws(scores, seeds, ("accuracy", "found"))
    measured = {"settings": {"choices": choices}, **packed}
    publish(parser, options, measured, ["first_labels", "first_labels_gains"])


if __name__ == "__main__":
    main()
