"""EmbeddingClassifier: soft k-means from labelled examples on, guided by spread labels."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import normalize

from sklearn_mmdinit import EmbeddingClassifier, MMDInitializer
from sklearn_mmdinit.embedding_classifier import fit_classes

N_CLASSES = 6
# Rows around six directions, and their classes.
X, y = make_blobs(420, 24, centers=N_CLASSES, cluster_std=9.0, random_state=1)
X = X.astype(np.float32)


def partly(y, n):
    """Labels of the first n rows of each class; -1 elsewhere."""
    rank = np.zeros(len(y), dtype=int)
    for label in np.unique(y):
        rank[y == label] = np.arange(np.sum(y == label))
    return np.where(rank < n, y, -1)


def test_unlabelled_rows_help():
    few = partly(y, 1)
    clf = EmbeddingClassifier().fit(X, few)
    known = few != -1
    logistic = LogisticRegression(C=100).fit(normalize(X[known]), y[known])
    assert clf.score(X[~known], y[~known]) > logistic.score(normalize(X[~known]), y[~known]) + 0.05
    assert clf.classes_.tolist() == list(range(N_CLASSES))
    proba = clf.predict_proba(X)
    assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-5)
    assert_array_equal(clf.predict(X), proba.argmax(axis=1))


def test_em_ends_where_the_means_are_those_of_its_own_classes():
    rng = np.random.default_rng(0)
    centers = normalize(rng.normal(size=(3, 5)))
    rows = normalize(np.repeat(centers, 40, axis=0) + 0.1 * rng.normal(size=(120, 5)))
    rows = rows.astype(np.float32)
    given = np.zeros((120, 3), dtype=np.float32)
    given[[0, 40, 80], [0, 1, 2]] = 1.0
    prior = np.zeros((120, 3), dtype=np.float32)
    means, shift = fit_classes(rows, given, prior)
    proba = softmax(40.0 * rows @ means.T + shift, axis=1)
    proba[given.any(axis=1)] = given[given.any(axis=1)]
    assert_allclose(means, normalize(proba.T @ rows), atol=1e-5)
    assert_allclose(shift, -0.5 * np.log(proba.sum(axis=0) + 1), atol=1e-4)
    # A prior that names another class for a row without a label moves it there.
    prior[1] = [0.0, 1e3, 0.0]
    moved, _ = fit_classes(rows, given, prior)
    assert moved[1] @ rows[1] > means[1] @ rows[1] + 1e-3


def test_neither_the_length_of_rows_nor_their_order_counts():
    few = partly(y, 2)
    proba = EmbeddingClassifier().fit(X, few).predict_proba(X[:50])
    lengths = 10 ** np.random.default_rng(0).uniform(-30, 30, size=(len(X), 1))
    rows = (lengths * X).astype(np.float32)
    scaled = EmbeddingClassifier().fit(rows, few).predict_proba(rows[:50])
    assert_allclose(scaled, proba, atol=1e-4)
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = EmbeddingClassifier().fit(X[order], few[order]).predict_proba(X[:50])
    assert_allclose(shuffled, proba, atol=1e-3)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, "-1"])
def test_strings_without_a_label_are_none_nan_or_minus_one(missing):
    few = partly(y, 2)
    numbers = EmbeddingClassifier().fit(X, few)
    names = np.array([*"abcdef", missing], dtype=object)
    clf = EmbeddingClassifier().fit(X, names[few])
    assert clf.classes_.tolist() == list("abcdef")
    assert_array_equal(clf.predict(X), names[numbers.predict(X)])
    assert clf.score(X, names[y].astype(str)) == numbers.score(X, y)


def test_numpys_booleans_are_labels_in_a_list_too():
    is_first = y == 0
    of_list, of_array = (EmbeddingClassifier().fit(X, v) for v in ([*is_first], is_first))
    assert_array_equal(of_list.class_means_, of_array.class_means_)
    init = MMDInitializer((4,), max_iter=0)
    assert init.fit(X, [*is_first]).config_.n_classes_is_known


def test_labels_of_two_kinds_are_refused():
    with pytest.raises(ValueError, match="string and number"):
        EmbeddingClassifier().fit(X[:6], np.array([1, "b", -1, 1, "b", -1], dtype=object))


def test_it_works_in_cross_validation_and_with_frames():
    frame = pd.DataFrame(X).rename(columns=lambda i: f"unit{i}")
    clf = EmbeddingClassifier().fit(frame, partly(y, 2))
    assert clf.feature_names_in_.tolist() == list(frame.columns)
    assert cross_val_score(clf, X[:60], y[:60], cv=3).mean() > 0.4


def test_labels_reach_all_copies_of_two_examples():
    rows = np.repeat([[1.0, 0.0], [1.0, 0.1]], 15, axis=0)
    labels = np.full(30, -1)
    labels[[0, 15]] = 0, 1
    assert_array_equal(EmbeddingClassifier().fit(rows, labels).predict(rows), np.repeat([0, 1], 15))


def test_few_rows_are_enough():
    two_kinds = np.repeat([[1, 0, 0, 1, 0, 0]], 4, axis=0).T
    for rows in (np.eye(6)[:, :4] + 0.1, two_kinds):  # some are zeros, which have no direction
        clf = EmbeddingClassifier().fit(rows, [0, 1, -1, 0, 1, -1])
        assert np.isfinite(clf.predict_proba(rows)).all()


@pytest.mark.parametrize(("share", "n_labels"), [(0.02, 8), (0.1, 3)])
def test_a_rare_class_may_have_as_many_labels_as_the_others(share, n_labels):
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < share).astype(int)
    X = 1.6 * normalize(rng.normal(size=(2, 64)))[y] + 0.45 * rng.normal(size=(2000, 64))
    few = partly(y, n_labels)
    predicted = EmbeddingClassifier().fit(X, few).predict(X)
    assert f1_score(y, predicted) > 0.95


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("kind", [list, np.asarray])
def test_a_column_of_vectors_is_refused_with_what_to_write(table, kind):
    rows, classes = X[:40], y[:40]
    frame = table({"its name": [kind(row) for row in rows.tolist()]})
    with pytest.raises(ValueError, match=r"sequence|ambiguous") as error:
        EmbeddingClassifier().fit(frame, classes)
    assert "if a column of X holds vectors, pass np.stack(X['name'])" in error.value.__notes__[0]
    clf = EmbeddingClassifier().fit(np.stack(frame["its name"]), classes)
    assert clf.score(rows, classes) > 0.5
