"""What people use with few labels, tuned by cross-validation on them: fits that give probabilities.

Each function fits on labelled rows X (n, n_features) with classes y (n,) and returns a classifier.
Where no class has two labels there is nothing to validate on, and the defaults stay.
"""

import warnings
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import euclidean_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC

from rivals.wrappers import UNLABELLED, GraphLabelSpreading

N_FOLDS = 5
LEAST = 1e-6  # probability, so that a single row cannot decide a mean logarithm
Cs = np.logspace(-3, 3, 7)


def log_likelihood(classifier: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Mean logarithm of the probability of each row's class, also of one that was not trained on.

    The scorer of all searches over classifiers with probabilities: of few labels accuracy is too
    coarse to tell settings apart.
    """
    of_class = (
        classifier.predict_proba(X)[:, None, :] * (classifier.classes_ == y[:, None])[:, None, :]
    )
    return float(np.log(np.maximum(of_class.sum(axis=(1, 2)), LEAST)).mean())


def folds(y: np.ndarray, seed: int) -> StratifiedKFold | None:
    """A stratified splitter, of fewer folds where no class has as many labels; of one none."""
    most = int(np.unique(y, return_counts=True)[1].max())
    return (
        StratifiedKFold(min(N_FOLDS, most), shuffle=True, random_state=seed) if most > 1 else None
    )


def _tuned(
    classifier: Any,
    grid: dict[str, Any],
    X: np.ndarray,
    y: np.ndarray,
    seed: int,
    scoring: Any = log_likelihood,
) -> Any:
    """The best of a grid, fitted; with its own parameters where there are no folds."""
    splitter = folds(y, seed)
    if splitter is None:
        return classifier.fit(X, y)
    return GridSearchCV(classifier, grid, scoring=scoring, cv=splitter).fit(X, y).best_estimator_


class SoftmaxClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Probabilities by the softmax of a fitted classifier's scores, of two classes the logistic."""

    def __init__(self, fitted: Any) -> None:
        self.fitted = fitted
        self.classes_ = fitted.classes_

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        scores = self.fitted.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)


def _calibrated(classifier: Any, X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Scores made probabilities by a temperature, which leaves the order of classes as it is."""
    splitter = folds(y, seed)
    if splitter is None:
        return SoftmaxClassifier(classifier.fit(X, y))
    # As a list: a splitter would have to give each fold rows of every class.
    parts = [*splitter.split(X, y)]
    model = CalibratedClassifierCV(classifier, method="temperature", ensemble=False, cv=parts)
    return model.fit(X, y)


def logistic(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return _tuned(LogisticRegression(max_iter=1000), {"C": Cs}, X, y, seed)


def features_logistic(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """On hidden activations: rows of length 1, which ask for a weaker penalty."""
    model = make_pipeline(Normalizer(), LogisticRegression(C=100.0, max_iter=1000))
    grid = {"logisticregression__C": [0.3, 1.0, 3.0, 10.0, 30.0, 100.0]}
    return _tuned(model, grid, X, y, seed)


def embedding_logistic(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """On coordinates whose scale means nothing."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return _tuned(model, {"logisticregression__C": Cs}, X, y, seed)


def svm(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """With a Gaussian kernel; chosen by accuracy, since probabilities come afterwards."""
    scale = 1.0 / (X.shape[1] * (float(X.var()) or 1.0))  # what scikit-learn's "scale" stands for
    grid = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.1 * scale, 0.3 * scale, scale, 3.0 * scale]}
    best = _tuned(SVC(), grid, X, y, seed, scoring="accuracy")
    return _calibrated(best, X, y, seed)


class Prototypes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The class of the nearest mean.

    scikit-learn's :class:`NearestCentroid` has no probabilities of one row a class.
    """

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == each].mean(axis=0) for each in self.classes_])
        return self

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Minus half the mean squared distance to each; of two classes their difference."""
        scores = -euclidean_distances(X, self.means_, squared=True) / (2 * X.shape[1])
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[euclidean_distances(X, self.means_).argmin(axis=1)]


def prototype(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return _calibrated(Prototypes(), X, y, seed)


def forest(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    return RandomForestClassifier(300, random_state=seed).fit(X, y)


def lightgbm(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Boosted trees; by default they never divide fewer than 40 rows, or values of fewer than 6."""
    from lightgbm import LGBMClassifier

    # Small trees with coarse bins, for so few rows; the defaults take ten times as long.
    model = LGBMClassifier(
        n_estimators=50, num_leaves=8, max_bin=63, min_child_samples=1, min_data_in_bin=1,
        random_state=seed, n_jobs=1, verbosity=-1,
    )  # fmt: skip
    grid = {"min_child_samples": [1, 5], "colsample_bytree": [0.3, 1.0]}
    return _tuned(model, grid, X, y, seed)


def self_training(X: np.ndarray, y: np.ndarray, X_unlabelled: np.ndarray, seed: int) -> Any:
    """Logistic regression, its penalty chosen on the labels, that labels rows it is sure of."""
    base = LogisticRegression(C=logistic(X, y, seed).C, max_iter=1000)
    labels = np.concatenate([y, np.full(len(X_unlabelled), UNLABELLED)])
    return SelfTrainingClassifier(base).fit(np.concatenate([X, X_unlabelled]), labels)


def label_spreading(
    rows: np.ndarray, y: np.ndarray, spread: csr_array, neighbors: np.ndarray, seed: int
) -> Any:
    """Of the classes of the rows so numbered over a graph; it predicts numbers (n, 1) of rows."""
    grid = {"alpha": [0.5, 0.8, 0.95, 0.99]}
    return _tuned(GraphLabelSpreading(spread, neighbors), grid, rows[:, None], y, seed)


def umap_embedding(X: np.ndarray, X_new: np.ndarray, seed: int) -> np.ndarray:
    """Ten coordinates, or as many as X has, of rows X and then of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # of a part that needs TensorFlow
        from umap import UMAP

    n_components = min(10, X.shape[1])
    # Points close together: what its authors recommend where an embedding is not for the eye.
    model = UMAP(n_components=n_components, min_dist=0.0, random_state=seed, n_jobs=1)
    return np.concatenate([model.fit_transform(X), model.transform(X_new)]).astype(np.float32)
