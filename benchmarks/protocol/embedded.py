"""Embedded texts and photographs with few labels: vectors, methods, what stands for a record."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from data import encoded
from data.datasets import Report
from data.sentences import MAX_TOKENS, MINILM, load_encoder
from data.texts import load_texts
from protocol.store import code_digest, data_digest, deciding_versions, digest_of, write_atomically
from protocol.tasks import rows_of_classes, seed_of
from rivals import from_embeddings as rules
from rivals.from_embeddings import Draw
from sklearn_mmdinit import EmbeddingClassifier

# To be raised where what is measured changes otherwise than by a parameter.
FORM = 1


@dataclass(frozen=True, eq=False)
class Embedded:
    """A set as the methods see it: rows to draw labelled ones from, rows to test on."""

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


def embedded(
    name: str, data_dir: Path | None, folder: Path, seed: int, report: Report, progress: bool
) -> tuple[Embedded, dict[str, Any]]:
    """A set with the published training and test parts as vectors, and what results say of it.

    The vectors are computed once, and kept in ``folder``.
    """
    if name in encoded.PHOTOGRAPHS:
        of = encoded.load_photograph_files(name, data_dir)
        package, number = encoded.PACKAGE, version(encoded.PACKAGE)
        weights, at_most = sha256(encoded.weights()).hexdigest(), encoded.WIDTH
        make: Callable[[], Any] = encoded.PhotographEncoder
    else:
        of = load_texts(name, data_dir, report)
        package, number = MINILM.name, MINILM.version
        weights, at_most = MINILM.sha256, MAX_TOKENS
        make = partial(load_encoder, data_dir, report)
    parts = of.X[: of.n_train], of.X[-of.n_test :]
    path = folder / f"{name}-{digest_of([FORM, of.digest, weights, at_most])}.npz"
    if not path.exists():
        report(f"{name}: computing the vectors of {of.n_train + of.n_test} examples, once")
        encoder = make()
        # One after the other, so that training rows do not depend on test examples.
        train, test = (encoder.encode(part.tolist(), progress=progress) for part in parts)
        write_atomically(path, lambda part: np.savez(part, X=train, X_test=test))
    with np.load(path) as arrays:
        X, X_test = arrays["X"], arrays["X_test"]
    y, y_test = of.y[: of.n_train], of.y[-of.n_test :]
    rows, n_classes = (X, y, X_test, y_test), int(of.y.max()) + 1
    data = Embedded(name, of.digest, *rows, n_classes, seed_of(seed, name))
    entry: dict[str, Any] = {"set": name, "source": of.source, "digest": of.digest}
    entry |= {"encoder": f"{package} {number}", "encoder_digest": weights}
    entry |= {"vectors_digest": data.X_digest, "test_vectors_digest": data.test_digest}
    entry |= {"train": of.n_train, "test": of.n_test, "classes": n_classes}
    return data, entry


def has_enough(data: Embedded, n_labels: int) -> bool:
    """Whether half of the classes have so many rows to draw from."""
    return bool(np.median(np.bincount(data.y, minlength=data.n_classes)) >= n_labels)


def labelled_rows(data: Embedded, n_labels: int, draw: int) -> np.ndarray:
    """Training rows: N of each class, or all of a smaller one; fewer are part of more."""
    return np.sort(rows_of_classes(data.y, n_labels, seed_of(data.seed, draw)))


# Methods


def embedding_classifier(draw: Draw) -> np.ndarray:
    labels = np.concatenate([draw.y, np.full(len(draw.X_unlabelled), -1)])
    return EmbeddingClassifier().fit(draw.X_train, labels).predict(draw.X_test)


ALPHAS, SCALES = (0.5, 0.8, 0.95, 0.99), (20.0, 40.0)
METHODS: dict[str, Callable[[Draw], np.ndarray]] = {
    "EmbeddingClassifier": embedding_classifier,
    "logistic, C = 10": partial(rules.logistic, C=10.0),
    "logistic, C = 100": rules.logistic,
    "prototypes": rules.prototypes,
    "self-training": rules.self_training,
}
for words, alpha in product(("", ", equal masses"), ALPHAS):
    METHODS[f"label spreading, {alpha:g}{words}"] = partial(
        rules.label_spreading, alpha=alpha, equal_masses=bool(words)
    )
for words, scale in product(("", ", equal sizes"), SCALES):
    METHODS[f"soft k-means, {scale:g}{words}"] = partial(
        rules.soft_kmeans, scale=scale, equal_sizes=bool(words)
    )


# Records


def record_key(data: Embedded, method: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides a record."""
    of_package = method == "EmbeddingClassifier"
    code = code_digest(without=frozenset()) if of_package else None
    parts = [FORM, data.digest, data.X_digest, data.test_digest, data.seed, n_labels, draw, method]
    return digest_of([*parts, code, deciding_versions()])


def score_cell(
    wanted: dict[str, str], n_labels: int, draw: int, data: Embedded
) -> list[dict[str, Any]]:
    """Records of the methods wanted, by name with their keys, of one draw."""
    labelled = labelled_rows(data, n_labels, draw)
    others = np.setdiff1d(np.arange(len(data.y)), labelled)
    given = Draw(data.X[labelled], data.y[labelled], data.X[others], data.X_test, data.n_classes)
    records = []
    with warnings.catch_warnings():
        # scikit-learn asks whether so many classes of so few rows are not a regression.
        warnings.simplefilter("ignore")
        for name, key in wanted.items():
            start = time.perf_counter()
            guess = METHODS[name](given)
            seconds = time.perf_counter() - start
            record = {"key": key, "set": data.name, "n_labels": n_labels, "draw": draw}
            record |= {"method": name, "accuracy": round(float((guess == data.y_test).mean()), 6)}
            records.append(record | {"seconds": round(seconds, 3)})
    return records
