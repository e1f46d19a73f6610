"""Rivals without a network, on features that are learned once from the unlabelled images.

A rival here needs no validation rows, so it trains on all 12 N labelled rows of a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from protocol.methods import Contender
from rivals.label_spreading import GraphLabelSpreading, nearest_pool_rows, normalized_graph

__all__ = ["CLASSIFIERS", "principal_components", "rival_contenders"]

N_COMPONENTS = 50
N_CLUSTERS = 256
N_NEIGHBORS = 10


def principal_components(pool: np.ndarray, seed: int) -> PCA:
    """The first components of unlabelled rows (n, n_pixels), fitted."""
    n_components = min(N_COMPONENTS, pool.shape[1])
    return PCA(n_components, random_state=seed, svd_solver="covariance_eigh").fit(pool)


class _Features:
    """What the classifiers read, each made when the first of them asks for it."""

    def __init__(self, X: np.ndarray, n_train: int, *, seed: int, n_jobs: int) -> None:
        self.X, self.n_train, self.seed, self.n_jobs = X, n_train, seed, n_jobs
        self.n_components = min(N_COMPONENTS, X.shape[1])
        self.n_clusters = min(N_CLUSTERS, n_train)

    @property
    def pool(self) -> np.ndarray:
        return self.X[: self.n_train]

    @cached_property
    def components(self) -> np.ndarray:
        """Principal components (n, n_components)."""
        return principal_components(self.pool, self.seed).transform(self.X).astype(np.float32)

    def distances(self) -> np.ndarray:
        """Distances (n, n_clusters) to the centres."""
        clusters = MiniBatchKMeans(
            self.n_clusters, random_state=self.seed, n_init=3, batch_size=2048
        )
        return clusters.fit(self.pool).transform(self.X).astype(np.float32)

    def neighbors(self) -> np.ndarray:
        """Nearest training rows (n, N_NEIGHBORS)."""
        return nearest_pool_rows(self.components, self.n_train, N_NEIGHBORS, self.n_jobs)

    def contender(
        self, name: str, X: np.ndarray, estimator: BaseEstimator, **identity: Any
    ) -> Contender:
        shared = {"seed": self.seed, "n_train": self.n_train, "n_components": self.n_components}
        return Contender(name, X, lambda random_state: clone(estimator), shared | identity)


def _nearest_neighbor(name: str, features: _Features) -> Contender:
    return features.contender(name, features.components, KNeighborsClassifier(1))


def _rbf_svm(name: str, features: _Features) -> Contender:
    return features.contender(name, features.components, SVC(C=10.0), C=10.0)


def _k_means_svm(name: str, features: _Features) -> Contender:
    svm = make_pipeline(StandardScaler(), SVC(C=10.0))
    return features.contender(
        name, features.distances(), svm, C=10.0, n_clusters=features.n_clusters
    )


def _label_spreading(name: str, features: _Features) -> Contender:
    neighbors = features.neighbors()
    spreading = GraphLabelSpreading(normalized_graph(neighbors[: features.n_train]), neighbors)
    return features.contender(
        name,
        np.arange(len(features.X))[:, None],
        spreading,
        n_neighbors=N_NEIGHBORS,
        alpha=spreading.alpha,
        n_iter=spreading.n_iter,
    )


CLASSIFIERS: dict[str, Callable[[str, _Features], Contender]] = {
    "rival/1-nn": _nearest_neighbor,
    "rival/rbf-svm": _rbf_svm,
    "rival/k-means-svm": _k_means_svm,
    "rival/label-spreading": _label_spreading,
}
"""Rivals without a network, in the order of the tables."""


def rival_contenders(
    X: np.ndarray,
    n_train: int,
    *,
    seed: int,
    n_jobs: int = 1,
    names: Sequence[str] = tuple(CLASSIFIERS),
) -> list[Contender]:
    """The rivals without a network, their features learned from the first ``n_train`` rows.

    Parameters
    ----------
    X : ndarray, shape (n_train + n_test, n_pixels)
        Scaled pixels, the training rows first.
    n_train : int
        How many rows are training rows.
    seed : int
        Seeds the principal components and the clusters.
    n_jobs : int
        Jobs for the search of neighbours.
    names : sequence of str
        Keys of ``CLASSIFIERS``; only what these need is computed.
    """
    features = _Features(X, n_train, seed=seed, n_jobs=n_jobs)
    return [CLASSIFIERS[name](name, features) for name in names]
