"""Rows beside the paper's: what needs no network and may use the unlabelled images too.

They say what theta0 is for. It is a better start for a neural network; it is not the best
classifier for few labels, and these rows show by how much.

Each rival is an ordinary estimator on features learned once from the unlabelled training
images. A rival needs no validation rows, so it trains on all 12 N labelled rows of a draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from protocol.methods import Contender

__all__ = ["RIVALS", "rival_contenders"]

RIVALS = ("rival/1-nn", "rival/rbf-svm", "rival/k-means-svm", "rival/label-spreading")

N_COMPONENTS = 50
N_CLUSTERS = 256
N_NEIGHBORS = 10


class GraphLabelSpreading(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label spreading (Zhou et al., 2004) on a nearest-neighbour graph that was made before.

    scikit-learn's own :class:`LabelSpreading` searches the neighbours of all 60,000 rows again
    in every fit, and has no probabilities where no label arrives; otherwise this is the same:
    F <- alpha S F + (1 - alpha) Y with S = D^-1/2 W D^-1/2.

    Parameters
    ----------
    spread : sparse array, shape (n_pool, n_pool)
        S, the normalised graph over the training rows.
    neighbors : ndarray of int, shape (n_rows, k)
        For each row, training and test, its nearest training rows.
    alpha : float
        Share of a row's label that comes from its neighbours.
    n_iter : int
        Number of steps.
    """

    def __init__(
        self, spread: csr_array, neighbors: np.ndarray, alpha: float = 0.99, n_iter: int = 100
    ) -> None:
        self.spread = spread
        self.neighbors = neighbors
        self.alpha = alpha
        self.n_iter = n_iter

    def fit(self, X: np.ndarray, y: np.ndarray) -> GraphLabelSpreading:
        """Spread the labels y (n,) of the pool rows numbered X (n, 1) over the pool."""
        self.classes_, indices = np.unique(y, return_inverse=True)
        clamped = np.zeros((self.spread.shape[0], len(self.classes_)))
        clamped[X.ravel(), indices] = 1.0 - self.alpha
        scores = clamped
        for _ in range(self.n_iter):
            scores = self.alpha * (self.spread @ scores) + clamped
        totals = scores.sum(axis=1, keepdims=True)
        # A row that no label reaches votes for none.
        self.label_distributions_ = scores / np.where(totals > 0.0, totals, 1.0)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels (n,) of the rows numbered X (n, 1): the vote of their pool neighbours."""
        votes = self.label_distributions_[self.neighbors[X.ravel()]].sum(axis=1)
        return self.classes_[votes.argmax(axis=1)]


def normalized_graph(neighbors: np.ndarray) -> csr_array:
    """S = D^-1/2 W D^-1/2 (n, n) of rows (n, k) of neighbours, W symmetric."""
    n, k = neighbors.shape
    ends = np.arange(0, n * k + 1, k)
    directed = csr_array((np.ones(n * k), neighbors.ravel(), ends), shape=(n, n))
    graph = (directed + directed.T).tocoo()
    # Every row has k neighbours at least, so no degree is 0.
    scale = 1.0 / np.sqrt(graph.sum(axis=1))
    rows, columns = graph.coords
    return csr_array((graph.data * scale[rows] * scale[columns], (rows, columns)), shape=(n, n))


def _neighbors(features: np.ndarray, n_pool: int, n_jobs: int) -> np.ndarray:
    """Indices (n, N_NEIGHBORS) of the nearest pool rows, a pool row itself left out."""
    search = NearestNeighbors(n_neighbors=N_NEIGHBORS, n_jobs=n_jobs).fit(features[:n_pool])
    # Without an argument scikit-learn asks for the neighbours of the fitted rows, each
    # without itself.
    inside = search.kneighbors(return_distance=False)
    outside = search.kneighbors(features[n_pool:], return_distance=False)
    return np.concatenate([inside, outside]).astype(np.int32)


def rival_contenders(X: np.ndarray, n_train: int, *, seed: int, n_jobs: int = 1) -> list[Contender]:
    """The rivals, their features learned from the first ``n_train`` rows.

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
    """
    pool = X[:n_train]
    n_components = min(N_COMPONENTS, X.shape[1])
    components = PCA(n_components, random_state=seed, svd_solver="covariance_eigh").fit(pool)
    pcs = components.transform(X).astype(np.float32)
    n_clusters = min(N_CLUSTERS, n_train)
    clusters = MiniBatchKMeans(n_clusters, random_state=seed, n_init=3, batch_size=2048)
    # Distances to the 256 centres are the features.
    distances = clusters.fit(pool).transform(X).astype(np.float32)
    numbers = np.arange(len(X))[:, None]
    neighbors = _neighbors(pcs, n_train, n_jobs)
    spreading = GraphLabelSpreading(normalized_graph(neighbors[:n_train]), neighbors)
    svm = make_pipeline(StandardScaler(), SVC(C=10.0))
    shared = {"seed": seed, "n_train": n_train, "n_components": n_components}

    def always(estimator: BaseEstimator) -> Callable[[int], BaseEstimator]:
        return lambda random_state: clone(estimator)

    def rival(
        name: str, features: np.ndarray, estimator: BaseEstimator, **identity: Any
    ) -> Contender:
        return Contender(name, features, always(estimator), shared | identity)

    return [
        rival("rival/1-nn", pcs, KNeighborsClassifier(1)),
        rival("rival/rbf-svm", pcs, SVC(C=10.0), C=10.0),
        rival("rival/k-means-svm", distances, svm, C=10.0, n_clusters=n_clusters),
        rival(
            "rival/label-spreading",
            numbers,
            spreading,
            n_neighbors=N_NEIGHBORS,
            alpha=spreading.alpha,
            n_iter=spreading.n_iter,
        ),
    ]
