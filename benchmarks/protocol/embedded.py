"""Embedded texts with few labels: their vectors, what is made of each set once, and the methods."""

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data.datasets import Report
from data.sentences import MAX_TOKENS, MINILM, load_encoder, load_texts
from protocol.sets import Prepared, labelled_rows, package_version, seed_of
from protocol.store import code_digest, deciding_versions, digest_of, write_atomically
from rivals import few_labels
from rivals import from_embeddings as rules
from sklearn_mmdinit import Coherence, MMDInitializer

# To be raised where what is measured changes otherwise than by a parameter.
FORM = 1


Rows = tuple[np.ndarray, np.ndarray]
"""Training and test rows."""


def _save(path: Path, rows: Rows) -> None:
    X, X_test = rows
    write_atomically(path, lambda part: np.savez(part, X=X, X_test=X_test))


def _load(path: Path) -> Rows:
    with np.load(path) as arrays:
        return arrays["X"], arrays["X_test"]


def embedded(
    name: str, data_dir: Path | None, folder: Path, seed: int, report: Report, progress: bool
) -> tuple[Prepared, dict[str, Any]]:
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
        _save(path, (train, test))
    X, X_test = _load(path)
    y, y_test = table.y[:n_train], table.y[-n_test:]
    n_classes = int(table.y.max()) + 1
    data = Prepared(name, table.digest, X, y, X_test, y_test, n_classes, seed_of(seed, name))
    entry: dict[str, Any] = {"set": name, "source": table.source, "digest": table.digest}
    entry |= {"encoder": f"{MINILM.name} {MINILM.version}", "encoder_digest": MINILM.sha256}
    entry |= {"vectors_digest": data.X_digest, "test_vectors_digest": data.test_digest}
    entry |= {"train": n_train, "test": n_test, "classes": n_classes}
    return data, entry


# What is made once a set, of its training rows without labels


def _features(data: Prepared) -> Rows:
    """Last hidden activations, of length 1, of one wide layer that coherence alone has taught."""
    scale = np.sqrt(data.X.shape[1])
    initializer = MMDInitializer(
        (1024,),
        n_classes=data.n_classes,
        coherence=Coherence(separation=data.n_classes / 5, walk_length=10.0),
        uniformity_weight=0.0,
        degeneracy_weight=0.0,
        detachment_weight=0.0,
        output="hidden",
        random_state=data.seed,
    ).fit(scale * data.X)
    X, X_test = (initializer.transform(scale * rows) for rows in (data.X, data.X_test))
    return rules.unit_rows(X), rules.unit_rows(X_test)


def _umap(data: Prepared) -> Rows:
    both = few_labels.umap_embedding(data.X, data.X_test, data.seed)
    return both[: len(data.X)], both[len(data.X) :]


ROWS: dict[str, Callable[[Prepared], Rows]] = {
    "embeddings": lambda data: (data.X, data.X_test),
    "features": _features,
    "umap": _umap,
}


def rows_key(name: str, data: Prepared) -> str:
    """What stands for an entry of ROWS before it is made."""
    parts: list[Any] = [FORM, name, data.X_digest, data.test_digest, data.n_classes, data.seed]
    if name == "features":
        parts.append(code_digest())
    elif name == "umap":
        parts.append(package_version("umap-learn"))
    return digest_of([*parts, deciding_versions()])


def rows_path(name: str, data: Prepared, folder: Path) -> Path:
    return folder / f"{data.name}-{name}-{rows_key(name, data)}.npz"


def make_rows(name: str, folder: Path, data: Prepared) -> dict[str, Any]:
    """Make an entry of ROWS and write its file; the record that says what it took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        made = ROWS[name](data)
        seconds = time.perf_counter() - start
    _save(rows_path(name, data, folder), made)
    record = {"key": rows_key(name, data), "set": data.name, "once": name}
    return record | {"seconds": round(seconds, 2)}


def read_rows(name: str, data: Prepared, folder: Path) -> Rows:
    if name == "embeddings":
        return data.X, data.X_test
    return _load(rows_path(name, data, folder))


# Methods

Predict = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]
"""``(X_labelled, y, X_unlabelled, X_test, n_classes)`` to the predicted classes of X_test."""


@dataclass(frozen=True, eq=False)
class Method:
    """A rule, and the entries of ROWS whose columns it sees side by side."""

    predict: Predict
    rows: tuple[str, ...] = ("embeddings",)


ALPHAS, SCALES = (0.5, 0.8, 0.99), (20.0, 40.0)
METHODS = {
    # Provisional: to be replaced by the recommended estimator.
    "features, class means": Method(rules.prototypes, ("features",)),
    "features beside, logistic": Method(rules.logistic, ("embeddings", "features")),
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
    "umap+logistic": Method(rules.scaled_logistic, ("umap",)),
}


def needed_rows(methods: Iterable[str]) -> list[str]:
    """The entries of ROWS that methods need and that take time to make."""
    names = dict.fromkeys(name for method in methods for name in METHODS[method].rows)
    return [name for name in names if name != "embeddings"]


def record_key(data: Prepared, method: str, n_labels: int, draw: int) -> str:
    """What stands for all that decides a record."""
    rows = [rows_key(name, data) for name in METHODS[method].rows]
    return digest_of([FORM, data.digest, data.seed, n_labels, draw, method, rows])


def score_cell(
    wanted: dict[str, str], n_labels: int, draw: int, folder: Path, data: Prepared
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
            parts = [read_rows(each, data, folder) for each in method.rows]
            X, X_test = (np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True))
            start = time.perf_counter()
            guess = method.predict(X[labelled], data.y[labelled], X[others], X_test, data.n_classes)
            seconds = time.perf_counter() - start
            record = {"key": key, "set": data.name, "n_labels": n_labels, "draw": draw}
            record |= {"method": name, "accuracy": round(float((guess == data.y_test).mean()), 6)}
            records.append(record | {"seconds": round(seconds, 3)})
    return records
