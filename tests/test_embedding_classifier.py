"""EmbeddingClassifier: soft k-means from labelled rows on, guided by spread labels."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, normalize

from sklearn_mmdinit import Coherence, LearnedFeatures, MMDInitializer
from sklearn_mmdinit import EmbeddingClassifier as Classifier
from sklearn_mmdinit.embedding_classifier import fit_classes

N_CLASSES = 6
EmbeddingClassifier = partial(Classifier, unlabelled_label=-1)


@pytest.fixture(scope="module")
def blobs():
    """Rows around six directions, and their classes."""
    X, y = make_blobs(420, 24, centers=N_CLASSES, cluster_std=9.0, random_state=1)
    return X.astype(np.float32), y


def partly(y, n, mark=-1):
    """Labels of the first n rows of each class; the mark elsewhere."""
    rank = np.zeros(len(y), dtype=int)
    for label in np.unique(y):
        rank[y == label] = np.arange(np.sum(y == label))
    return np.where(rank < n, y, mark)


def short_features(**params):
    term = Coherence(batch_size=64)
    init = MMDInitializer((16,), coherence=term, max_iter=2, n_perturbations=4, window=2)
    return LearnedFeatures([init], with_row=False, **params)


def test_unlabelled_rows_help(blobs):
    X, y = blobs
    few = partly(y, 1)
    clf = EmbeddingClassifier(None).fit(X, few)
    known = few != -1
    logistic = LogisticRegression(C=100).fit(normalize(X[known]), y[known])
    assert clf.score(X[~known], y[~known]) > logistic.score(normalize(X[~known]), y[~known]) + 0.05
    assert clf.classes_.tolist() == list(range(N_CLASSES))
    proba = clf.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-5)
    assert_array_equal(clf.predict(X), proba.argmax(axis=1))


def test_columns_on_other_scales_are_told(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match=r"column 3 of X is \d\d% .*standardize X first"):
        EmbeddingClassifier(None).fit(X * np.where(np.arange(24) == 3, 50, 1), partly(y, 1))


def test_em_ends_where_the_means_are_those_of_its_own_classes():
    rng = np.random.default_rng(0)
    centers = normalize(rng.normal(size=(3, 5)))
    rows = normalize(np.repeat(centers, 40, axis=0) + 0.1 * rng.normal(size=(120, 5)))
    rows = rows.astype(np.float32)
    given = np.zeros((120, 3), dtype=np.float32)
    given[[0, 40, 80], [0, 1, 2]] = 1.0
    prior = np.zeros((120, 3), dtype=np.float32)
    (means,), shift = fit_classes([rows], given, prior)
    proba = softmax(40.0 * rows @ means.T + shift, axis=1)
    proba[given.any(axis=1)] = given[given.any(axis=1)]
    assert_allclose(means, normalize(proba.T @ rows), atol=1e-5)
    assert_allclose(shift, -0.5 * np.log((proba.sum(axis=0) + 1) / 40), atol=1e-4)
    # A prior that names another class for a row without a label moves it there.
    prior[1] = [0.0, 1e3, 0.0]
    (moved,), _ = fit_classes([rows], given, prior)
    assert moved[1] @ rows[1] > means[1] @ rows[1] + 1e-3


def test_neither_the_length_of_rows_nor_their_order_counts(blobs):
    X, y = blobs
    few = partly(y, 2)
    proba = EmbeddingClassifier(None).fit(X, few).predict_proba(X[:50])
    lengths = 10 ** np.random.default_rng(0).uniform(-30, 30, size=(len(X), 1))
    rows = (lengths * X).astype(np.float32)
    scaled = EmbeddingClassifier(None).fit(rows, few).predict_proba(rows[:50])
    assert_allclose(scaled, proba, atol=1e-4)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = EmbeddingClassifier(None).fit(X[order], few[order]).predict_proba(X[:50])
    assert_allclose(shuffled, proba, atol=1e-3)


def test_rows_without_labels_may_be_passed_apart(blobs):
    X, y = blobs
    few = partly(y, 2)
    known = few != -1
    together = EmbeddingClassifier(None).fit(X, few).predict_proba(X)
    half = X[~known][:100], X[~known][100:]
    for apart in (X[~known], half):
        clf = Classifier(None).fit(X[known], y[known], apart)
        assert_allclose(clf.predict_proba(X), together, atol=1e-4)
    names = np.array(["a", "b", "c", "d", "e", "f", "?"])
    clf = EmbeddingClassifier(None, unlabelled_label="?").fit(X, names[few])
    assert_array_equal(clf.predict(X), names[together.argmax(axis=1)])


def test_features_are_learned_from_all_rows(blobs):
    X, y = blobs
    few = partly(y, 2)
    clf = EmbeddingClassifier(short_features(), random_state=0).fit(X, few)
    (init,) = clf.features_.initializers_
    assert init.theta0_.architecture.n_classes == N_CLASSES
    assert [m.shape for m in clf.class_means_] == [(6, 24), (6, 16)]
    # Rows have the length sqrt(n_features) there.
    rows = normalize(X) * np.sqrt(24)
    assert_allclose(init.theta0_.row_mean, rows.mean(axis=0), atol=1e-5)
    again = EmbeddingClassifier(short_features(), random_state=0).fit(X, few)
    assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    # Frozen features are used as they are, also by clones.
    frozen = EmbeddingClassifier(FrozenEstimator(clf.features_), random_state=5)
    assert_array_equal(clone(frozen).fit(X, few).predict_proba(X), clf.predict_proba(X))
    # Any transformer will do.
    squares = EmbeddingClassifier(FunctionTransformer(np.square)).fit(X, few)
    assert squares.class_means_[1].shape == (6, 24)


def test_the_seed_reaches_features_in_a_pipeline(blobs):
    X, few = blobs[0], partly(blobs[1], 2)
    (init,) = short_features().initializers
    piped = make_pipeline(StandardScaler(), init.set_params(output="hidden"))
    clf = EmbeddingClassifier(piped, random_state=0)
    assert_array_equal(clf.fit(X, few).predict_proba(X), clone(clf).fit(X, few).predict_proba(X))


def test_the_default_has_features_of_a_wide_layer(blobs):
    X, y = blobs
    clf = EmbeddingClassifier(random_state=0).fit(X[:40], partly(y[:40], 2))
    assert [m.shape for m in clf.class_means_] == [(6, 24), (6, 1024)]
    (init,) = clf.features_.initializers_
    assert set(init.history_[0]) == {"loss", "step", "coherence"}


def test_it_works_in_cross_validation_and_with_frames(blobs):
    X, y = blobs
    frame = pd.DataFrame(X).rename(columns=lambda i: f"unit{i}")
    clf = EmbeddingClassifier(None).fit(frame, partly(y, 2))
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    known = slice(0, 60)
    more = {"X_unlabelled": (X[60:],)}
    assert cross_val_score(clf, X[known], y[known], cv=3, params=more).mean() > 0.7


def test_few_rows_are_enough():
    X, y = np.eye(6)[:, :4] + 0.1, np.array([0, 1, -1, 0, 1, -1])
    for features in (None, "auto"):
        proba = EmbeddingClassifier(features, random_state=0).fit(X, y).predict_proba(X)
        assert np.isfinite(proba).all()
    assert np.isfinite(EmbeddingClassifier(None).fit(X * 0 + [[1], [0], [0], [1], [0], [0]], y)
                       .predict_proba(X)).all()  # fmt: skip
