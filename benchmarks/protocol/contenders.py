"""Rows beside the paper's: other ways to use the unlabelled images, or none.

Classifiers without a network need no validation rows, so they train on all 12 N of a draw. Rivals
that are networks are scratch with one thing changed: the same tasks, labelled images, order of the
rows and, where they keep them, fresh weights, so that a difference from scratch is a paired one.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from protocol import methods
from protocol.evaluation import Bench
from protocol.store import data_digest
from protocol.tasks import shuffled_rows
from protocol.theta0s import Pretrained
from rivals import starts, wrappers
from rivals.few_labels import umap_embedding
from sklearn_mmdinit import Theta0

# Names, in the order of the tables

CLASSIFIERS = ("rival/1-nn", "rival/rbf-svm", "rival/k-means-svm", "rival/label-spreading")
NETWORKS = (
    "rival/lsuv",
    "rival/autoencoder",
    "rival/pca-layer",
    "rival/self-training",
    "rival/tuned-scratch",
)
# They take minutes once, or for each task.
GRAPHS = ("rival/shared-label-spreading", "rival/poisson-learning", "rival/umap-logistic")
AUTOENCODER_NETWORK, AUTOENCODER_FEATURES = "rival/autoencoder", "rival/autoencoder-logistic"
RIVALS = (*CLASSIFIERS, *GRAPHS, *NETWORKS, AUTOENCODER_FEATURES)
"""Every rival that knows the images as they are."""

# What coherence gets of images, they get: oriented gradients (name -> the rival of the pixels),
# changed copies, both.
GRADIENTS = {
    "rival/gradients-svm": "rival/rbf-svm",
    "rival/gradients-label-spreading": "rival/label-spreading",
    "rival/gradients-shared-label-spreading": "rival/shared-label-spreading",
    "rival/gradients-umap-logistic": "rival/umap-logistic",
}
AUGMENTED = ("rival/augmented-svm", "rival/augmented-scratch")
AUGMENTED_GRADIENTS = "rival/augmented-gradients-svm"
ALL_RIVALS = (*RIVALS, *GRADIENTS, *AUGMENTED, AUGMENTED_GRADIENTS)


def select_rivals(
    patterns: Sequence[str] | None, *, augmented: bool = False, gradients: bool = False
) -> list[str]:
    """The rivals that ``--rivals`` asks for: names or patterns, with or without ``rival/``.

    None, where the option is not given: none; empty, the option alone: those without a network and
    what coherence's images make valid, but for GRAPHS, by pixels or by gradients.
    """
    if patterns is None:
        return []
    more = [*(GRADIENTS if gradients else ()), *(AUGMENTED if augmented else ())]
    more += [AUGMENTED_GRADIENTS] if gradients and augmented else []
    if not patterns:
        return [*CLASSIFIERS, *(name for name in more if GRADIENTS.get(name) not in GRAPHS)]
    full = [p if p.startswith("rival/") else f"rival/{p}" for p in patterns]
    return methods.select_names(full, (*RIVALS, *more), what="rival")


def scratch_of(method: str) -> str | None:
    """The network from scratch that a row is paired with (scratch with itself), if it is one."""
    if method in (*methods.METHODS, *methods.CONVNET_METHODS):
        return f"{method.rpartition('/')[0]}/scratch"
    return methods.SCRATCH if method in {*NETWORKS, "rival/augmented-scratch"} else None


# Values

N_COMPONENTS = 50
N_CLUSTERS = 256
N_NEIGHBORS = 10
N_COPIES = 20  # of each labelled row
SHARED_POWER = 2.0

# A mini-batch large enough that the variance of a layer's outputs is that of all rows.
LSUV_ROWS = 256

# A round fits the network anew on all rows that have a label by then: with 5,000 rows and three
# rounds that is four trainings of a thousand steps at most, some 20 seconds of one core; 60,000
# rows and scikit-learn's ten rounds would be half an hour for every score. The threshold is chosen
# on four tasks of run 4 at N = 5. Mean gain over scratch at 0.8, 0.95 and 0.99: +0.9, -0.1, -0.1.
SELF_TRAINING: dict[str, Any] = {"threshold": 0.8, "max_iter": 3}
SELF_TRAINING_ROWS = 5000


class _Features:
    """What the classifiers read of X (n_train + n_test, n_features), made when first asked for."""

    def __init__(self, X: np.ndarray, bench: Bench) -> None:
        self.X, self.n_train, self.seed = X, len(bench.X_unlabelled), bench.options.seed
        self.n_jobs = joblib.effective_n_jobs(bench.options.jobs)
        self.n_components = min(N_COMPONENTS, X.shape[1])
        identity = {"seed": self.seed, "n_train": self.n_train, "n_components": self.n_components}
        self.identity: dict[str, Any] = identity

    @cached_property
    def pca(self) -> PCA:
        pca = PCA(self.n_components, random_state=self.seed, svd_solver="covariance_eigh")
        return pca.fit(self.X[: self.n_train])

    @cached_property
    def components(self) -> np.ndarray:
        """Principal components (n, n_components)."""
        return self.pca.transform(self.X).astype(np.float32)

    @cached_property
    def nearest(self) -> np.ndarray:
        """The nearest training rows of each (n, N_NEIGHBORS)."""
        return wrappers.nearest_rows(self.components, self.n_train, N_NEIGHBORS, self.n_jobs)

    def contender(self, name: str, of: str, identity: dict[str, Any]) -> methods.Contender:
        """A rival of CLASSIFIERS under a name."""
        X, estimator, values = self._classifier(of)
        values = self.identity | values | identity
        return methods.Contender(name, X, lambda _: clone(estimator), values)

    def _classifier(self, of: str) -> tuple[np.ndarray, BaseEstimator, dict[str, Any]]:
        """What it reads, what it is, and what of it decides a score."""
        if of == "rival/1-nn":
            return self.components, KNeighborsClassifier(1), {}
        if of == "rival/rbf-svm":
            return self.components, SVC(C=10.0), {"C": 10.0}
        if of == "rival/k-means-svm":
            n = min(N_CLUSTERS, self.n_train)
            clusters = MiniBatchKMeans(n, random_state=self.seed, n_init=3, batch_size=2048)
            distances = clusters.fit(self.X[: self.n_train]).transform(self.X).astype(np.float32)
            svm = make_pipeline(StandardScaler(), SVC(C=10.0))
            return distances, svm, {"C": 10.0, "n_clusters": n}
        if of == "rival/umap-logistic":
            parts = self.components[: self.n_train], self.components[self.n_train :]
            coordinates = umap_embedding(*parts, self.seed)
            logistic = make_pipeline(StandardScaler(), LogisticRegression(C=10.0))
            return coordinates, logistic, {"C": 10.0, "n_coordinates": coordinates.shape[1]}
        shared = {"shared": SHARED_POWER} if of == "rival/shared-label-spreading" else {}
        graph = wrappers.symmetric_graph(self.nearest[: self.n_train], **shared)
        values: dict[str, Any] = {"n_neighbors": N_NEIGHBORS} | shared
        if of == "rival/poisson-learning":
            spreading: Any = wrappers.PoissonLearning(graph, self.nearest)
        else:
            graph = wrappers.normalized_graph(graph)
            spreading = wrappers.GraphLabelSpreading(graph, self.nearest)
            values |= {"alpha": spreading.alpha}
        return np.arange(len(self.X))[:, None], spreading, values | {"n_iter": spreading.n_iter}


class Rivals:
    """The rivals of a command, run by run; what all runs share is made once."""

    def __init__(self, names: Sequence[str], bench: Bench) -> None:
        self.bench = bench
        of_a_run = (*NETWORKS, AUTOENCODER_FEATURES)
        self.of_runs = [name for name in names if name in of_a_run]
        self.classifiers = [self._classifier(name) for name in names if name not in of_a_run]

    def of_run(self, run: int) -> tuple[list[methods.Contender], list[dict[str, Any]]]:
        """The contenders of a run, and a record of each start that was learned for it."""
        learned, records = None, []
        if any(name.startswith(AUTOENCODER_NETWORK) for name in self.of_runs):
            learned = self._autoencoder(run)
            records = [{"method": AUTOENCODER_NETWORK, "run": run} | learned.record()]
        return self.classifiers + [self._of_run(name, learned) for name in self.of_runs], records

    # Classifiers

    @cached_property
    def _pixels(self) -> _Features:
        self.bench.say("features and neighbours for the rivals")
        return _Features(self.bench.X, self.bench)

    @cached_property
    def _gradients(self) -> _Features:
        histograms: np.ndarray = clone(methods.EMBEDDINGS["gradients"]).fit_transform(self.bench.X)
        return _Features(histograms, self.bench)

    def _classifier(self, name: str) -> methods.Contender:
        gradients = clone(methods.EMBEDDINGS["gradients"])
        by_gradients = {"embedding": ["OrientedGradients", gradients.get_params()]}
        if name in GRADIENTS:
            return self._gradients.contender(name, GRADIENTS[name], by_gradients)
        if name in (*CLASSIFIERS, *GRAPHS):
            return self._pixels.contender(name, name, {})
        change: Any = methods.AUGMENTATIONS[self.bench.network.augmentation]
        copies = {"n_copies": N_COPIES, "augmentation": repr(change)}
        if name == "rival/augmented-scratch":

            def augmented(pipeline: Pipeline, random_state: int) -> Pipeline:
                return make_pipeline(
                    wrappers.AugmentedClassifier(pipeline, change, N_COPIES, random_state)
                )

            return methods.variant(self._scratch, name, augmented, copies)
        # An RBF-SVM on fitted features of the labelled rows and of changed copies of them.
        features: list[Any] = [self._pixels.pca]
        if name == AUGMENTED_GRADIENTS:
            features = [gradients.fit(self.bench.X), self._gradients.pca]
            copies |= by_gradients
        svm = make_pipeline(*map(FrozenEstimator, features), SVC(C=10.0))
        trained = wrappers.AugmentedClassifier(svm, change, N_COPIES)
        identity = self._pixels.identity | {"n_components": features[-1].n_components, "C": 10.0}
        identity |= {"changes": "of each task"} | copies

        def make(random_state: int) -> BaseEstimator:
            return clone(trained).set_params(random_state=random_state)

        return methods.Contender(name, self.bench.X, make, identity)

    # Networks

    @property
    def _scratch(self) -> methods.Contender:
        return methods.network_contender(methods.SCRATCH, self.bench.network, self.bench.X)

    def _autoencoder(self, run: int) -> Pretrained:
        """A start that takes minutes: learned once a run, as ours is, and kept."""
        bench = self.bench
        network = bench.network
        initializer = starts.DenoisingAutoencoder(
            network.hidden_layer_sizes, network.classes, random_state=bench.seed_of(run)
        )
        bench.say(f"run {run}: learning {AUTOENCODER_NETWORK}, epochs: {initializer.max_iter}")
        return bench.learn(initializer, AUTOENCODER_NETWORK)

    def _of_run(self, name: str, theta0: Pretrained | None) -> methods.Contender:
        scratch, settings, X = self._scratch, self.bench.network, self.bench.X_unlabelled
        widths = (X.shape[1], *settings.hidden_layer_sizes, settings.classes)

        def starting(
            arrays: Callable[[Theta0, int], starts.Arrays], identity: dict[str, Any]
        ) -> methods.Contender:
            """From arrays that follow from scratch's own fresh weights, or the seed, in a fit."""

            def change(pipeline: Pipeline, random_state: int) -> Pipeline:
                fresh = starts.fresh_theta0(pipeline[-1], widths[0], widths[-1])
                details = Theta0(fresh.architecture, arrays(fresh, random_state))
                return pipeline.set_params(mlpclassifier__warm_start_from=details)

            return methods.variant(scratch, name, change, identity)

        if name == "rival/tuned-scratch":
            return methods.TUNED[settings.classes].contender(scratch, name)
        if name == "rival/self-training":
            rows = shuffled_rows(len(X), "self_training", seed=self.bench.options.seed)
            X_unlabelled = X[np.sort(rows[:SELF_TRAINING_ROWS])]

            def self_trained(pipeline: Pipeline, random_state: int) -> Pipeline:
                network = pipeline[-1]
                return make_pipeline(
                    wrappers.SelfTrainedNetwork(network, X_unlabelled, **SELF_TRAINING)
                )

            details = SELF_TRAINING | {"unlabelled": data_digest(X_unlabelled)}
            return methods.variant(scratch, name, self_trained, details)
        if name == "rival/lsuv":
            return starting(
                lambda fresh, random_state: starts.lsuv_arrays(
                    X, widths, np.random.default_rng(random_state), batch_size=LSUV_ROWS
                ),
                {"start": "lsuv", "rows": LSUV_ROWS},
            )
        if name == "rival/pca-layer":
            components = starts.components_of(X, widths[1])
            return starting(
                lambda fresh, random_state: starts.with_components(dict(fresh.arrays), components),
                {"first layer": "components and negatives"},
            )
        assert theta0 is not None  # the autoencoder's
        if name == AUTOENCODER_FEATURES:
            features = starts.hidden(theta0.initializer.theta0_, self.bench.X)
            logistic = make_pipeline(Normalizer(), LogisticRegression(C=100.0, max_iter=1000))
            details = {"encoder": theta0.digest, "pipeline": [repr(step) for step in logistic]}
            return methods.Contender(name, features, lambda _: clone(logistic), details)
        encoder = dict(theta0.initializer.theta0_.arrays)
        for last in (starts.weight_name(len(widths) - 2), starts.bias_name(len(widths) - 2)):
            del encoder[last]
        return starting(
            lambda fresh, random_state: dict(fresh.arrays) | encoder, {"encoder": theta0.digest}
        )
