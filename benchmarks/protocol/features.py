"""Classifiers on what a theta0's last hidden layer says of the rows: no fine-tuning at all."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from protocol.methods import FEATURES, FEATURES_CV, Contender

__all__ = ["features_contender"]


def _logistic() -> ClassifierMixin:
    return LogisticRegression(C=100.0, max_iter=1000)


def _logistic_cv() -> ClassifierMixin:
    """A strong penalty is best where each digit is a class, a weak one where several are."""
    penalties = {"C": [0.3, 1.0, 3.0, 10.0, 30.0]}
    # Not stratified: a class may have fewer labels than there are folds. From N = 5 on no fold
    # is without one of two classes but by the rarest of chances.
    folds = KFold(5, shuffle=True, random_state=0)
    return GridSearchCV(LogisticRegression(max_iter=1000), penalties, cv=folds)


CLASSIFIERS: dict[str, Callable[[], ClassifierMixin]] = {
    FEATURES: _logistic,
    FEATURES_CV: _logistic_cv,
}


def features_contender(
    *, X: np.ndarray, initializer: BaseEstimator, theta0_digest: str, name: str = FEATURES
) -> Contender:
    """A pipeline that needs no validation rows and trains on all of a draw.

    Parameters
    ----------
    X : ndarray, shape (n_train + n_test, ...)
        The training rows, then the test rows, as the initializer takes them.
    initializer : MMDInitializer
        Fitted; it is left as it is.
    theta0_digest : str
        Stands for the initializer in the identity of a score.
    name : str
        Its row in the tables: a key of CLASSIFIERS, or one behind the name of a network.
    """
    features = copy.copy(initializer).set_params(output="hidden", device="cpu", verbose=0)
    classifier = CLASSIFIERS[name.rpartition("/")[2]]()
    # Frozen: a clone of a pipeline would learn theta0 again, from the few rows of a fold.
    pipeline: Pipeline = make_pipeline(FrozenEstimator(features), Normalizer(), classifier)
    # The first step is theta0 itself.
    identity = {"pipeline": [repr(step) for step in pipeline[1:]], "theta0": theta0_digest}
    return Contender(name, X, lambda random_state: pipeline, identity)
