"""Embedded texts with few labels: their vectors, what is made of each set once, and the methods."""

import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from data.datasets import Report
from data.sentences import MAX_TOKENS, MINILM, load_encoder, load_texts, open_encoder
from protocol.sets import Prepared, labelled_rows, package_version, seed_of
from protocol.store import code_digest, deciding_versions, digest_of, write_atomically
from rivals import few_labels, fine_tuned_encoder
from rivals import from_embeddings as rules
from rivals.from_embeddings import Draw
from sklearn_mmdinit import EmbeddingClassifier, LearnedFeatures, MLPClassifier

# To be raised where what is measured changes otherwise than by a parameter.
FORM = 1


Rows = tuple[np.ndarray, np.ndarray]
"""Training and test rows."""


@dataclass(frozen=True, eq=False)
class Embedded(Prepared):
    """A set as the methods see it, with the training and test texts that the rows embed.

    The files of the encoder are in data_dir, scikit-learn's data home or else on PyPI.
    """

    texts: Rows
    data_dir: Path | None


def embedded(
    name: str, data_dir: Path | None, folder: Path, seed: int, report: Report, progress: bool
) -> tuple[Embedded, dict[str, Any]]:
    """A set with the published training and test texts as vectors, and what results say of it.

    The vectors are computed once, and kept in ``folder``.
    """
    table, n_train, n_test = load_texts(name, data_dir, report)
    key = digest_of([FORM, table.digest, MINILM.sha256, MAX_TOKENS])
    path = folder / f"{name}-{key}.npz"
    if not path.exists():
        report(f"{name}: computing the vectors of {n_train + n_test} texts, once")
        encoder = load_encoder(data_dir, report)
        # One after the other, so that training rows do not depend on test texts.
        train, test = (
            encoder.encode(texts, progress=progress)
            for texts in (table.X[:n_train], table.X[-n_test:])
        )
        write_atomically(path, lambda part: np.savez(part, X=train, X_test=test))
    with np.load(path) as arrays:
        X, X_test = arrays["X"], arrays["X_test"]
    y, y_test = table.y[:n_train], table.y[-n_test:]
    n_classes = int(table.y.max()) + 1
    texts = np.array(table.X, dtype=object)
    parts, seed_of_set = (texts[:n_train], texts[-n_test:]), seed_of(seed, name)
    rows = X, y, X_test, y_test
    data = Embedded(name, table.digest, *rows, n_classes, seed_of_set, parts, data_dir)
    entry: dict[str, Any] = {"set": name, "source": table.source, "digest": table.digest}
    entry |= {"encoder": f"{MINILM.name} {MINILM.version}", "encoder_digest": MINILM.sha256}
    entry |= {"vectors_digest": data.X_digest, "test_vectors_digest": data.test_digest}
    entry |= {"train": n_train, "test": n_test, "classes": n_classes}
    return data, entry


# What is made once a set, of its training rows without labels


def _learned_features(data: Prepared) -> LearnedFeatures:
    """The features of EmbeddingClassifier, which see of labels only how many classes there are."""
    y = np.full(len(data.y), -1)
    labelled = labelled_rows(data, 1, 0)
    y[labelled] = data.y[labelled]
    clf = EmbeddingClassifier(unlabelled_label=-1, random_state=data.seed).fit(data.X, y)
    features: LearnedFeatures = clf.features_
    return features


def _umap(data: Prepared) -> Rows:
    both = few_labels.umap_embedding(data.X, data.X_test, data.seed)
    return both[: len(data.X)], both[len(data.X) :]


MADE: dict[str, Callable[[Embedded], Any]] = {
    "features": _learned_features,
    "umap": _umap,
    "texts": lambda data: data.texts,
}
_PACKAGES = {"umap": "umap-learn", "texts": "setfit"}
"""What methods on other rows need; SetFit is not among what the benchmarks install."""


@cache
def once_key(name: str, data: Prepared) -> str:
    """What stands for an entry of MADE before it is made."""
    version = code_digest() if name == "features" else package_version(_PACKAGES[name])
    parts: list[Any] = [FORM, name, data.X_digest, data.test_digest, data.n_classes, data.seed]
    return digest_of([*parts, version, deciding_versions()])


def make(name: str, data: Embedded) -> Any:
    return MADE[name](data)


def _scaled(X: np.ndarray) -> np.ndarray:
    """Rows of length 1 with entries of about 1, as EmbeddingClassifier gives them to features."""
    return X * np.float32(np.sqrt(X.shape[1]))


# Methods

Predict = Callable[..., np.ndarray]
"""From a draw to the predicted classes of its test rows.

One that needs learned features or the encoder's files takes them as one more argument.
"""


@dataclass(frozen=True, eq=False)
class Method:
    """A rule, and the entry of MADE that it needs: features, or rows in place of the embeddings."""

    predict: Predict
    made: str | None = None


def embedding_classifier(draw: Draw, features: Any = None) -> np.ndarray:
    clf = EmbeddingClassifier(features).fit(draw.X, draw.y, draw.X_unlabelled)
    return clf.predict(draw.X_test)


def network(draw: Draw, features: FrozenEstimator) -> np.ndarray:
    """The network of the features, fine-tuned."""
    (initializer,) = features.initializers_
    clf = MLPClassifier(initializer.hidden_layer_sizes, warm_start_from=initializer, random_state=0)
    return clf.fit(_scaled(draw.X), draw.y).predict(_scaled(draw.X_test))


def on_features(rule: Predict, draw: Draw, features: Any) -> np.ndarray:
    """A rule on learned features in place of the embeddings."""
    names = ("X", "X_unlabelled", "X_test")
    rows = {name: features.transform(_scaled(getattr(draw, name))) for name in names}
    return rule(replace(draw, **rows))


def setfit(draw: Draw, encoder: zipfile.ZipFile) -> np.ndarray:
    """SetFit from the same encoder; rows are texts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder.extractall(folder)
        rows = draw.X, draw.y, draw.X_test
        return fine_tuned_encoder.setfit(*rows, draw.n_classes, folder, MAX_TOKENS)


ALPHAS, SCALES = (0.5, 0.8, 0.95, 0.99), (20.0, 40.0)
METHODS = {
    "EmbeddingClassifier": Method(embedding_classifier, "features"),
    "EmbeddingClassifier without features": Method(embedding_classifier),
    "features, class means": Method(partial(on_features, rules.prototypes), "features"),
    "features, fine-tuned network": Method(network, "features"),
    "logistic, C = 10": Method(partial(rules.logistic, C=10.0)),
    "logistic, C = 100": Method(rules.logistic),
    "prototypes": Method(rules.prototypes),
    "self-training": Method(rules.self_training),
    **{
        f"label spreading, {alpha:g}{words}": Method(
            partial(rules.label_spreading, alpha=alpha, equal_masses=bool(words))
        )
        for words in ("", ", equal masses")
        for alpha in ALPHAS
    },
    "LaplacianShot": Method(rules.laplacian_shot),
    **{
        f"soft k-means, {scale:g}{words}": Method(
            partial(rules.soft_kmeans, scale=scale, equal_sizes=bool(words))
        )
        for words in ("", ", equal sizes")
        for scale in SCALES
    },
    "umap+logistic": Method(rules.scaled_logistic, "umap"),
    "SetFit": Method(setfit, "texts"),
}


def needed(methods: Iterable[str]) -> list[str]:
    """The entries of MADE that methods need."""
    names = dict.fromkeys(METHODS[method].made for method in methods)
    return [name for name in names if name is not None]


def record_key(data: Prepared, method: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides a record."""
    made = METHODS[method].made
    is_of_package = method.startswith(("EmbeddingClassifier", "features"))
    version = code_digest(without=frozenset()) if is_of_package else None
    parts = [FORM, data.digest, data.X_digest, data.test_digest, data.seed, n_labels, draw, method]
    return digest_of([*parts, version, made and once_key(made, data), deciding_versions()])


def score_cell(
    wanted: dict[str, str], n_labels: int, draw: int, data: Embedded, made: dict[str, Any]
) -> list[dict[str, Any]]:
    """Records of the methods wanted, by name with their keys, of one draw."""
    labelled = labelled_rows(data, n_labels, draw)
    others = np.setdiff1d(np.arange(len(data.y)), labelled)
    records = []
    with warnings.catch_warnings():
        # scikit-learn asks whether so many classes of so few rows are not a regression.
        warnings.simplefilter("ignore")
        for name, key in wanted.items():
            method = METHODS[name]
            X, X_test, more = data.X, data.X_test, []
            if method.made == "features":
                more = [FrozenEstimator(made["features"])]
            elif method.made is not None:  # rows in place of the embeddings
                X, X_test = made[method.made]
            if method.made == "texts":
                more = [open_encoder(data.data_dir, print)]
            start = time.perf_counter()
            rows = Draw(X[labelled], data.y[labelled], X[others], X_test, data.n_classes)
            guess = method.predict(rows, *more)
            seconds = time.perf_counter() - start
            record = {"key": key, "set": data.name, "n_labels": n_labels, "draw": draw}
            record |= {"method": name, "accuracy": round(float((guess == data.y_test).mean()), 6)}
            records.append(record | {"seconds": round(seconds, 3)})
    return records
