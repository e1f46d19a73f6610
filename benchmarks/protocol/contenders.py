"""Rows beside the paper's: other ways to use the unlabelled images, or none.

They have no network and need no validation rows, so they train on all 12 N of a draw.
"""

import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from protocol import methods
from protocol.evaluation import Bench
from rivals import wrappers

# Names, in the order of the tables

CLASSIFIERS = ("rival/rbf-svm", "rival/label-spreading")
NO_NETWORK = "rival/embedding-classifier"  # what SPREAD does, on rows
# They take minutes once, or for each task.
GRAPHS = ("rival/shared-label-spreading", "rival/umap-logistic", NO_NETWORK)
RIVALS = (*CLASSIFIERS, *GRAPHS, "rival/tuned-scratch")
"""Every rival that knows the images as they are."""

# What coherence gets of images, they get: oriented gradients (name -> the rival of the pixels).
GRADIENTS = {
    "rival/gradients-svm": "rival/rbf-svm",
    "rival/gradients-label-spreading": "rival/label-spreading",
    "rival/gradients-shared-label-spreading": "rival/shared-label-spreading",
    "rival/gradients-umap-logistic": "rival/umap-logistic",
    "rival/gradients-embedding-classifier": NO_NETWORK,
}
ALL_RIVALS = (*RIVALS, *GRADIENTS, "rival/augmented-gradients-svm")
"""The last of each line was measured before its code was removed."""


def select_rivals(patterns: Sequence[str], *, gradients: bool) -> list[str]:
    """The rivals that ``--rivals`` asks for: names or patterns, with or without ``rival/``."""
    names = [*CLASSIFIERS, *GRAPHS, *(GRADIENTS if gradients else ())]
    full = [p if p.startswith("rival/") else f"rival/{p}" for p in patterns]
    return methods.select_names(full, names, what="rival")


def scratch_of(method: str) -> str | None:
    """The network from scratch that a row is paired with (scratch with itself), if it is one."""
    if method in (*methods.METHODS, *methods.CONVNET_METHODS):
        return f"{method.rpartition('/')[0]}/scratch"
    return None


# Values

N_COMPONENTS, N_NEIGHBORS, SHARED_POWER = 50, 10, 2.0


def umap_embedding(X: np.ndarray, X_new: np.ndarray, seed: int) -> np.ndarray:
    """Ten coordinates, or as many as X has, of rows X and then of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # of a part that needs TensorFlow
        from umap import UMAP

    n_components = min(10, X.shape[1])
    # Points close together: what its authors recommend where an embedding is not for the eye.
    model = UMAP(n_components=n_components, min_dist=0.0, random_state=seed, n_jobs=1)
    return np.concatenate([model.fit_transform(X), model.transform(X_new)]).astype(np.float32)


class _Features:
    """What the classifiers read of X (n_train + n_test, n_features), made when first asked for."""

    def __init__(self, X: np.ndarray, bench: Bench, identity: dict[str, Any]) -> None:
        self.X, self.n_train, self.seed = X, len(bench.X_unlabelled), bench.options.seed
        self.n_jobs = joblib.effective_n_jobs(bench.options.jobs)
        self.n_components = min(N_COMPONENTS, X.shape[1])
        self.identity = {"seed": self.seed, "n_train": self.n_train} | identity
        self.identity["n_components"] = self.n_components

    @cached_property
    def components(self) -> np.ndarray:
        """Principal components (n, n_components)."""
        pca = PCA(self.n_components, random_state=self.seed, svd_solver="covariance_eigh")
        return pca.fit(self.X[: self.n_train]).transform(self.X).astype(np.float32)

    @cached_property
    def nearest(self) -> np.ndarray:
        """The nearest training rows of each (n, N_NEIGHBORS)."""
        return wrappers.nearest_rows(self.components, self.n_train, N_NEIGHBORS, self.n_jobs)

    def classifier(self, of: str) -> tuple[np.ndarray, BaseEstimator, dict[str, Any]]:
        """What one of CLASSIFIERS or GRAPHS reads, what it is, and what of it decides a score."""
        if of == "rival/rbf-svm":
            return self.components, SVC(C=10.0), {"C": 10.0}
        if of == NO_NETWORK:
            others = methods.BesideOthers(self.components[: methods.N_SPREAD])
            return self.components, others, {"n_others": methods.N_SPREAD}
        if of == "rival/umap-logistic":
            parts = self.components[: self.n_train], self.components[self.n_train :]
            coordinates = umap_embedding(*parts, self.seed)
            logistic = make_pipeline(StandardScaler(), LogisticRegression(C=10.0))
            return coordinates, logistic, {"C": 10.0, "n_coordinates": coordinates.shape[1]}
        shared = {"shared": SHARED_POWER} if of == "rival/shared-label-spreading" else {}
        graph = wrappers.symmetric_graph(self.nearest[: self.n_train], **shared)
        spreading = wrappers.GraphLabelSpreading(wrappers.normalized_graph(graph), self.nearest)
        values: dict[str, Any] = {"n_neighbors": N_NEIGHBORS} | shared
        values |= {"alpha": spreading.alpha, "n_iter": spreading.n_iter}
        return np.arange(len(self.X))[:, None], spreading, values


class Rivals:
    """The rivals of a command; what they share is made once."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @cached_property
    def _pixels(self) -> _Features:
        self.bench.say("features and neighbours for the rivals")
        return _Features(self.bench.X, self.bench, {})

    @cached_property
    def _gradients(self) -> _Features:
        hog: Any = clone(methods.EMBEDDINGS["gradients"])
        identity = {"embedding": ["OrientedGradients", hog.get_params()]}
        return _Features(hog.fit_transform(self.bench.X), self.bench, identity)

    def contender(self, name: str) -> methods.Contender:
        """The rival of this name, on every run."""
        features = self._gradients if name in GRADIENTS else self._pixels
        X, estimator, values = features.classifier(GRADIENTS.get(name, name))
        identity = features.identity | values
        return methods.Contender(name, X, lambda _: clone(estimator), identity)
