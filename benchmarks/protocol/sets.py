"""Sets with few labels: their split, what is made of each once, the methods, and their scores."""

import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from data.labelled_sets import Table, preprocessing
from protocol.store import code_digest, data_digest, deciding_versions, digest_of
from protocol.theta0s import fit_key
from rivals import few_labels, starts
from rivals.wrappers import nearest_rows, normalized_graph, symmetric_graph
from sklearn_mmdinit import (
    LearnedFeatures,
    MLPClassifier,
    MMDInitializer,
    StackedStartsClassifier,
)

# To be raised where what is learned, or measured, changes otherwise than by a parameter: what was
# kept under the number before is then measured again.
FORM = 2

N_POOL, N_TEST = 6000, 4000
# Published figures are of so many.
N_OF_PHOTOGRAPHS = 50_000, 10_000
N_BINS = 10
N_NEIGHBORS = 10
PAPER_STEPS, PAPER_BATCH = 300, 32

NETWORK = MLPClassifier((256, 256), max_iter=60, validation_split=None)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A set as the methods see it: rows without labels to draw some from, and rows to test on."""

    name: str
    digest: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_classes: int
    seed: int

    @cached_property
    def X_digest(self) -> str:
        return data_digest(self.X)

    @cached_property
    def test_digest(self) -> str:
        return data_digest(self.X_test)


def seed_of(*parts: Any) -> int:
    """A seed that follows from numbers and names."""
    entropy = [zlib.crc32(str(part).encode()) for part in parts]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def prepared(table: Table, seed: int) -> Prepared:
    """The split of a set, the same for all draws, and what is learned from its pool alone."""
    n, seed_of_set = len(table.y), seed_of(seed, table.name)
    n_pool, n_test = N_OF_PHOTOGRAPHS if table.kind == "photographs" else (N_POOL, N_TEST)
    pool, test = train_test_split(
        np.arange(n),
        train_size=min(n_pool, n - n // 4),
        test_size=min(n_test, n // 4),
        stratify=table.y,
        random_state=seed_of_set,
    )
    rows = table.X.iloc if isinstance(table.X, pd.DataFrame) else table.X
    transformer = preprocessing(table).fit(rows[pool])
    X, X_test = (transformer.transform(rows[part]) for part in (pool, test))
    y, y_test = table.y[pool], table.y[test]
    n_classes = int(table.y.max()) + 1
    return Prepared(table.name, table.digest, X, y, X_test, y_test, n_classes, seed_of_set)


def labelled_rows(data: Prepared, n_labels: int, draw: int) -> np.ndarray:
    """Rows of the pool: N of each class, or all of a smaller one; fewer are part of more."""
    order = np.random.default_rng(seed_of(data.seed, draw)).permutation(len(data.y))
    of_classes = (order[data.y[order] == c][:n_labels] for c in range(data.n_classes))
    return np.sort(np.concatenate([*of_classes]))


def partly_labelled(data: Prepared, rows: np.ndarray) -> np.ndarray:
    """Labels of the whole pool, -1 but in some rows."""
    y = np.full(len(data.y), -1)
    y[rows] = data.y[rows]
    return y


def has_enough(data: Prepared, n_labels: int) -> bool:
    """Whether half of the classes have so many rows to draw from."""
    return bool(np.median(np.bincount(data.y, minlength=data.n_classes)) >= n_labels)


# What is made once a set, of its rows without labels

Made = dict[str, Any]
"""Theta0s, or arrays, by name."""


def recommended_starts(data: Prepared) -> Made:
    """The initializers of the learned features: long walks, and short ones of corrupted rows."""
    features = LearnedFeatures(n_classes=data.n_classes, random_state=data.seed).fit(data.X)
    coherence, corruption = features.initializers_
    return {"coherence": coherence, "corruption": corruption}


def paper_initializer(data: Prepared) -> MMDInitializer:
    """The paper's objective, as short a run as the others and at the rate that suits that."""
    return MMDInitializer(
        NETWORK.hidden_layer_sizes,
        n_classes=data.n_classes,
        n_perturbations=64,
        learning_rate_init=1e-3,
        max_iter=math.ceil(PAPER_STEPS / max(1, len(data.X) // PAPER_BATCH)),
        random_state=data.seed,
    )


def _scarf(data: Prepared) -> Made:
    network = clone(NETWORK).set_params(random_state=data.seed)
    return {"scarf": starts.scarf_theta0(data.X, network, data.n_classes, random_state=data.seed)}


def _neighbors(data: Prepared) -> Made:
    both = np.concatenate([data.X, data.X_test])
    return {"neighbors": nearest_rows(both, len(data.X), N_NEIGHBORS, 1)}


ONCE: dict[str, Callable[[Prepared], Made]] = {
    "starts": recommended_starts,
    "paper": lambda data: {"paper": paper_initializer(data).fit(data.X).theta0_},
    "scarf": _scarf,
    "umap": lambda data: {"umap": few_labels.umap_embedding(data.X, data.X_test, data.seed)},
    "neighbors": _neighbors,
}


@cache
def package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ValueError(f"pip install {package}, or leave its method out of --methods") from None


@cache
def once_key(name: str, data: Prepared) -> str:
    """What stands for a thing of ONCE before it is made."""
    parts: list[Any] = [FORM, name, data.X_digest, data.n_classes, data.seed, deciding_versions()]
    if name == "starts":
        parts.append(code_digest())
    elif name == "paper":
        parts += [fit_key(paper_initializer(data), data.X_digest), code_digest()]
    elif name == "umap":
        parts.append([package_version("umap-learn"), data.test_digest])
    elif name == "neighbors":
        parts.append([N_NEIGHBORS, data.test_digest])
    return digest_of(parts)


def needed(methods: Iterable[str]) -> list[str]:
    """Things of ONCE that the methods need."""
    return [name for name in dict.fromkeys(METHODS[name].once for name in methods) if name]


def make(name: str, data: Prepared) -> Made:
    return ONCE[name](data)


# Methods


@dataclass(frozen=True, eq=False)
class Cell:
    """The labelled rows of one draw, by number and as they are, and what was made of the set."""

    data: Prepared
    made: Made
    rows: np.ndarray
    X: np.ndarray
    y: np.ndarray
    seed: int

    @property
    def features(self) -> LearnedFeatures:
        """The recommended features, of initializers that have learned before."""
        return LearnedFeatures([self.made["coherence"], self.made["corruption"]])

    @cached_property
    def stacked(self) -> StackedStartsClassifier:
        """The recommended estimator, with features that were learned before."""
        return self.on_all_rows(self.features)

    def on_all_rows(self, features: LearnedFeatures | None) -> StackedStartsClassifier:
        labels = partly_labelled(self.data, self.rows)
        return self.recommended(features).fit(self.data.X, labels)

    def recommended(self, features: Any, **params: Any) -> StackedStartsClassifier:
        params = {"unlabelled_label": -1, "random_state": self.seed, **params}
        return StackedStartsClassifier(self.network(), features=features, **params)

    def network(self, start: Any = None) -> MLPClassifier:
        """The network of all methods that have one, unfitted, trained as from fresh weights."""
        network: MLPClassifier = clone(NETWORK).set_params(fine_tuning="paper")
        return network.set_params(warm_start_from=start, random_state=self.seed)


Proba = tuple[Any, np.ndarray]
"""A fitted classifier and its probabilities of the test rows."""


def _tested(classifier: Any, cell: Cell) -> Proba:
    return classifier, classifier.predict_proba(cell.data.X_test)


def _of_stacked(k: int, cell: Cell) -> Proba:
    return _tested(cell.stacked.estimators_[k], cell)


def _stacked(cell: Cell) -> Proba:
    return _tested(cell.stacked, cell)


def _stacked_without_features(cell: Cell) -> Proba:
    return _tested(cell.on_all_rows(None), cell)


def _stacked_labelled(learned: bool, others: Any, cell: Cell) -> Proba:
    features = cell.features if learned else None
    estimator = cell.recommended(features, classifiers=others, unlabelled_label=None)
    return _tested(estimator.fit(cell.X, cell.y), cell)


def _head_first(cell: Cell) -> Proba:
    """What is recommended of one start on a table."""
    start = cell.made["coherence"]
    network = MLPClassifier(warm_start_from=start, skip_connection=True, random_state=cell.seed)
    return _tested(network.fit(cell.X, cell.y), cell)


def _row_beside_features(cell: Cell) -> Proba:
    features, logistic = cell.features.fit(cell.data.X), LogisticRegression(C=100, max_iter=1000)
    return _tested(make_pipeline(FrozenEstimator(features), logistic).fit(cell.X, cell.y), cell)


def _network(start: str, cell: Cell) -> Proba:
    return _tested(cell.network(cell.made[start]).fit(cell.X, cell.y), cell)


def _plain(fit: Callable[..., Any], cell: Cell) -> Proba:
    return _tested(fit(cell.X, cell.y, cell.seed), cell)


def _vote(one: Callable[[Cell], Proba], two: Callable[[Cell], Proba], cell: Cell) -> Proba:
    """One voice each."""
    classifier, proba = one(cell)
    return classifier, (proba + two(cell)[1]) / 2


def _features(cell: Cell) -> Proba:
    theta0 = cell.made["coherence"].theta0_
    classifier = few_labels.features_logistic(starts.hidden(theta0, cell.X), cell.y, cell.seed)
    return classifier, classifier.predict_proba(starts.hidden(theta0, cell.data.X_test))


def _self_training(cell: Cell) -> Proba:
    others = np.delete(cell.data.X, cell.rows, axis=0)
    return _tested(few_labels.self_training(cell.X, cell.y, others, cell.seed), cell)


def _label_spreading(cell: Cell) -> Proba:
    neighbors, n = cell.made["neighbors"], len(cell.data.X)
    spread = normalized_graph(symmetric_graph(neighbors[:n]))
    classifier = few_labels.label_spreading(cell.rows, cell.y, spread, neighbors, cell.seed)
    return classifier, classifier.predict_proba(np.arange(n, len(neighbors))[:, None])


def _umap_logistic(cell: Cell) -> Proba:
    embedding, n = cell.made["umap"], len(cell.data.X)
    classifier = few_labels.embedding_logistic(embedding[cell.rows], cell.y, cell.seed)
    return classifier, classifier.predict_proba(embedding[n:])


@dataclass(frozen=True)
class Method:
    """How probabilities are found, which of ONCE it needs, and the package it is of."""

    proba: Callable[[Cell], Proba]
    once: str = ""
    package: str = ""


# From the same fit as "stacked".
NETWORKS_WITHIN = ("scratch",)
_forest, _svm = (partial(_plain, fit) for fit in (few_labels.forest, few_labels.svm))
_scarf_network = partial(_network, "scarf")
METHODS = {
    "stacked": Method(_stacked, "starts"),
    "stacked, fresh": Method(_stacked_without_features),
    # Features learned from all rows, and nothing else: no labels spread, no student.
    "stacked, labelled": Method(partial(_stacked_labelled, True, "auto"), "starts"),
    "stacked, labelled, fresh": Method(partial(_stacked_labelled, False, "auto")),
    "stacked networks": Method(partial(_stacked_labelled, True, []), "starts"),
    **{name: Method(partial(_of_stacked, k), "starts") for k, name in enumerate(NETWORKS_WITHIN)},
    "coherence": Method(partial(_network, "coherence"), "starts"),
    "corruption": Method(partial(_network, "corruption"), "starts"),
    "head first": Method(_head_first, "starts"),
    "row+features": Method(_row_beside_features, "starts"),
    "features+logistic": Method(_features, "starts"),
    "paper": Method(partial(_network, "paper"), "paper"),
    "scarf": Method(_scarf_network, "scarf"),
    "logistic": Method(partial(_plain, few_labels.logistic)),
    "svm": Method(_svm),
    "prototype": Method(partial(_plain, few_labels.prototype)),
    "forest": Method(_forest),
    # Of the three rivals that were best on the development sets.
    "forest+svm": Method(partial(_vote, _forest, _svm)),
    "forest+scarf": Method(partial(_vote, _forest, _scarf_network), "scarf"),
    "lightgbm": Method(partial(_plain, few_labels.lightgbm), package="lightgbm"),
    "self-training": Method(_self_training),
    "label-spreading": Method(_label_spreading, "neighbors"),
    "umap+logistic": Method(_umap_logistic, "umap", "umap-learn"),
}


# Scores


def calibration_error(proba: np.ndarray, y: np.ndarray) -> float:
    """Mean distance of confidence and accuracy over ten bins of confidence, weighed by rows."""
    confidence, right = proba.max(axis=1), proba.argmax(axis=1) == y
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=N_BINS)
    return float(np.abs(gaps).sum() / len(y))


def scores(proba: np.ndarray, classes: np.ndarray, y: np.ndarray, n_classes: int) -> dict[str, Any]:
    """Of probabilities of some classes, which are those of the labels."""
    full = np.zeros((len(y), n_classes))
    full[:, classes] = proba
    clipped = np.clip(full, few_labels.LEAST, 1.0)
    clipped /= clipped.sum(axis=1, keepdims=True)
    guess = full.argmax(axis=1)
    figures = {
        "accuracy": accuracy_score(y, guess),
        "log_loss": log_loss(y, clipped, labels=np.arange(n_classes)),
        "calibration_error": calibration_error(clipped, y),
    }
    return {name: round(float(value), 6) for name, value in figures.items()}


def score_cell(
    wanted: dict[str, str], n_labels: int, draw: int, data: Prepared, made: dict[str, Made]
) -> list[dict[str, Any]]:
    """Records of the methods wanted, by name with their keys, of one draw.

    Seconds of networks within ``stacked``, which cost nothing more, are those of their training.
    """
    rows, seed = labelled_rows(data, n_labels, draw), seed_of(data.seed, draw, "fit")
    parts = {name: part for things in made.values() for name, part in things.items()}
    cell, records = Cell(data, parts, rows, data.X[rows], data.y[rows], seed), []
    with warnings.catch_warnings():
        # Steep penalties end before they converge; a class with fewer labels than folds; and
        # LightGBM names the columns of an array itself and then misses those names.
        warnings.simplefilter("ignore")
        for name, key in wanted.items():
            start = time.perf_counter()
            classifier, proba = METHODS[name].proba(cell)
            seconds = time.perf_counter() - start
            if name in NETWORKS_WITHIN:
                seconds = sum(classifier.history_[:, "dur"])
            record = {"key": key, "set": data.name, "n_labels": n_labels}
            record |= {"draw": draw, "method": name}
            record |= scores(proba, classifier.classes_, data.y_test, data.n_classes)
            records.append(record | {"seconds": round(seconds, 3)})
    return records


# Committed records have keys with these names of the parameters.
_KEY_NAMES = {"classifiers": "others", "min_advantage": "threshold"}


def record_key(data: Prepared, name: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides the record of a method."""
    common = [FORM, data.name, data.digest, data.X_digest, data.test_digest, data.seed]
    common += [n_labels, draw, deciding_versions(), repr(NETWORK)]
    method, parts = METHODS[name], [common, name]
    if method.once:
        parts.append(once_key(method.once, data))
    if method.package:
        parts.append(package_version(method.package))
    if name.startswith("stacked"):
        settings = StackedStartsClassifier().get_params().items()
        parts.append(repr(sorted((_KEY_NAMES.get(n, n), value) for n, value in settings)))
    return digest_of(parts)
