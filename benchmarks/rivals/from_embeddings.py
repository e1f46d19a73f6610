"""What people use with few labels of embedded texts: rules that predict the classes of test rows.

No rule sees a test row before it predicts. With so few labels nothing can be tuned: every parameter
is fixed, and rules that depend on one are there with several values of it.
"""

from dataclasses import dataclass

import joblib
import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import SelfTrainingClassifier

from rivals.wrappers import nearest_rows, normalized_graph, spread_labels, symmetric_graph

N_NEIGHBORS = 10
N_ROUNDS = 40


@dataclass(frozen=True, eq=False)
class Draw:
    """Labelled rows (n_labelled, width) with numbers of their classes, other rows, and test rows.

    Rows have length 1, if they are embeddings.
    """

    X: np.ndarray
    y: np.ndarray
    X_unlabelled: np.ndarray
    X_test: np.ndarray
    n_classes: int

    @property
    def X_train(self) -> np.ndarray:
        """The labelled rows, then those without labels."""
        return np.concatenate([self.X, self.X_unlabelled])

    @property
    def class_sums(self) -> np.ndarray:
        """Sums (n_classes, width) of the labelled rows of each class."""
        return np.eye(self.n_classes, dtype=self.X.dtype)[self.y].T @ self.X


_last_search: dict[str, np.ndarray] = {}


def nearest_cosines(X: np.ndarray, X_test: np.ndarray) -> np.ndarray:
    """The nearest rows of X of all rows; the last answer is kept, since variants of a rule ask it.

    Of rows of length 1 the nearest ones have the largest cosine.
    """
    key = str(joblib.hash((X, X_test)))
    if key not in _last_search:
        _last_search.clear()
        both = np.concatenate([X, X_test])
        _last_search[key] = nearest_rows(both, len(X), N_NEIGHBORS, 1)
    return _last_search[key]


def prototypes(draw: Draw) -> np.ndarray:
    """The class of the mean with the largest cosine."""
    return (draw.X_test @ normalize(draw.class_sums).T).argmax(axis=1)


def logistic(draw: Draw, C: float = 100.0) -> np.ndarray:
    return LogisticRegression(C=C, max_iter=1000).fit(draw.X, draw.y).predict(draw.X_test)


def self_training(draw: Draw, C: float = 100.0, n_rounds: int = 5) -> np.ndarray:
    """Logistic regression that labels a share of the rows in each round, the surest first."""
    n = len(draw.X_unlabelled)
    model = SelfTrainingClassifier(
        LogisticRegression(C=C, max_iter=1000),
        criterion="k_best",
        k_best=-(-n // n_rounds),
        max_iter=n_rounds,
    )
    labels = np.concatenate([draw.y, np.full(n, -1)])
    return model.fit(draw.X_train, labels).predict(draw.X_test)


def label_spreading(draw: Draw, alpha: float = 0.8, equal_masses: bool = False) -> np.ndarray:
    """Label spreading (Zhou et al., 2004) on the graph of nearest neighbours by the cosine.

    Class mass normalization (Zhu, Ghahramani and Lafferty, 2003) scales the scores of each class to
    the same sum. A test row has the label that the scores of its neighbours vote for.
    """
    X_train, labelled = draw.X_train, np.arange(len(draw.y))
    n, n_iter = len(X_train), min(100, int(np.ceil(np.log(1e-4) / np.log(alpha))))
    neighbors = nearest_cosines(X_train, draw.X_test)
    spread = normalized_graph(symmetric_graph(neighbors[:n])).astype(np.float32)
    scores = spread_labels(spread, labelled, draw.y, draw.n_classes, alpha, n_iter)
    if equal_masses:
        scores = scores / scores.sum(axis=0)
    scores = scores / np.maximum(scores.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return scores[neighbors[n:]].sum(axis=1).argmax(axis=1)


def soft_kmeans(draw: Draw, scale: float = 20.0, equal_sizes: bool = False) -> np.ndarray:
    """Soft k-means of directions from the labelled rows on (Ren et al., 2018).

    Rows without labels belong to the classes by softmax(scale * cosine), labelled ones to theirs.
    ``equal_sizes`` adds to the scores of each class what makes the classes of equal size (Cuturi,
    2013), and test rows are scored with it too.
    """
    X_unlabelled, of_labelled = draw.X_unlabelled, draw.class_sums
    means, shift = normalize(of_labelled), np.zeros(draw.n_classes, dtype=draw.X.dtype)
    for _ in range(N_ROUNDS):
        scores = scale * (X_unlabelled @ means.T)
        if equal_sizes:
            shift = balancing_shift(scores, shift)
        means = normalize(of_labelled + softmax(scores + shift, axis=1).T @ X_unlabelled)
    return (scale * (draw.X_test @ means.T) + shift).argmax(axis=1)


def balancing_shift(scores: np.ndarray, shift: np.ndarray, n_rounds: int = 10) -> np.ndarray:
    """What to add to the scores (n, n_classes) for equal column sums of softmax, from ``shift``."""
    n, n_classes = scores.shape
    kernel = np.exp(scores - scores.max(axis=1, keepdims=True))
    factors = np.exp(shift)
    for _ in range(n_rounds):
        factors = n / n_classes / (kernel.T @ (1.0 / (kernel @ factors)))
    return np.log(factors)
