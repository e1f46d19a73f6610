"""What people use with few labels, tuned by cross-validation on them, and UMAP's coordinates."""

import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from rivals.wrappers import GraphLabelSpreading

N_FOLDS = 5
LEAST = 1e-6  # probability, so that a single row cannot decide a mean logarithm


def log_likelihood(classifier: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Mean logarithm of the probability of each row's class, also of one that was not trained on.

    Of few labels accuracy is too coarse to tell settings apart.
    """
    of_class = (
        classifier.predict_proba(X)[:, None, :] * (classifier.classes_ == y[:, None])[:, None, :]
    )
    return float(np.log(np.maximum(of_class.sum(axis=(1, 2)), LEAST)).mean())


def label_spreading(
    rows: np.ndarray, y: np.ndarray, spread: csr_array, neighbors: np.ndarray, seed: int
) -> Any:
    """Of the classes of the rows so numbered over a graph; it predicts numbers (n, 1) of rows.

    Where no class has two labels there is nothing to validate on, and the default alpha stays.
    """
    classifier, X = GraphLabelSpreading(spread, neighbors), rows[:, None]
    most = int(np.unique(y, return_counts=True)[1].max())
    if most < 2:
        return classifier.fit(X, y)
    # Fewer folds where no class has as many labels.
    folds = StratifiedKFold(min(N_FOLDS, most), shuffle=True, random_state=seed)
    grid = {"alpha": [0.5, 0.8, 0.95, 0.99]}
    search = GridSearchCV(classifier, grid, scoring=log_likelihood, cv=folds)
    return search.fit(X, y).best_estimator_


def umap_embedding(X: np.ndarray, X_new: np.ndarray, seed: int) -> np.ndarray:
    """Ten coordinates, or as many as X has, of rows X and then of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # of a part that needs TensorFlow
        from umap import UMAP

    n_components = min(10, X.shape[1])
    # Points close together: what its authors recommend where an embedding is not for the eye.
    model = UMAP(n_components=n_components, min_dist=0.0, random_state=seed, n_jobs=1)
    return np.concatenate([model.fit_transform(X), model.transform(X_new)]).astype(np.float32)
