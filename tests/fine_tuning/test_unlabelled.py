"""Rows without a label: for an initializer, and for nothing else."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import ShuffleSplit, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from nets import Counting, fits
from sklearn_mmdinit import MLPClassifier


@pytest.fixture(scope="module")
def data():
    """Rows, labels, the same with two in three unknown, further rows."""
    X, y = load_digits(return_X_y=True)
    y = y % 3
    few = np.where(np.arange(90) % 3, -1, y[:90])
    return X[:90] / 16, y[:90], few, X[200:260] / 16


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def tiny(**params):
    return Counting((6,), **params)


def small(**params):
    return MLPClassifier(**{"max_iter": 2, "batch_size": 15, "random_state": 0, **params})


def assert_learned_from(clf, X):
    np.testing.assert_array_equal(clf.initializer_.learned_from_, np.asarray(X, dtype=np.float32))


# unlabelled_label


@pytest.mark.parametrize("split", [1 / 6, None, ShuffleSplit(1, test_size=0.2, random_state=0)])
def test_the_loss_is_that_of_the_labelled_rows_alone(split, data):
    X, _, few, _ = data
    init = tiny().fit(X)
    clf = small(warm_start_from=init, validation_split=split, unlabelled_label=-1).fit(X, few)
    alone = small(warm_start_from=init, validation_split=split).fit(X[few >= 0], few[few >= 0])
    assert clf.classes_.tolist() == alone.classes_.tolist() == [0, 1, 2]
    assert clf.loss_curve_ == alone.loss_curve_
    assert clf.validation_loss_curve_ == alone.validation_loss_curve_
    np.testing.assert_array_equal(clf.predict_proba(X), alone.predict_proba(X))


def test_where_all_rows_have_a_label_it_is_said(data):
    X, y, few, further = data
    with pytest.warns(UserWarning, match="y has no rows with unlabelled_label=-1"):
        assert small(unlabelled_label=-1).fit(X[::3], few[::3]).classes_.tolist() == [0, 1, 2]
    # It encodes labels: -1 becomes 0, and a class.
    with pytest.warns(UserWarning, match="VotingClassifier or cross_val_predict"):
        VotingClassifier([("member", small(unlabelled_label=-1))]).fit(X, few)
    # Those who bring them in another way, name all classes, or set no marker need not be told.
    small(unlabelled_label=-1, warm_start_from=tiny()).fit(X, y, X_unlabelled=further)
    small(unlabelled_label=-1).fit(X, y, classes=[0, 1, 2])
    small().fit(X, y)


@pytest.mark.parametrize(
    ("mark", "names", "words"),
    [
        ("missing", ["a", "b", "c", ""], "'' in y is learned .*; set unlabelled_label=''"),
        (-9, [3, 4, 5, -1], "-1 in y is learned .*; set unlabelled_label=-1"),
        (float("nan"), [3, 4, 5, -1], "-1 in y is learned .*; set unlabelled_label=-1"),
        ("?", ["a", "b", "c", "x"], r"\['a', 'b', 'c', 'x'\] is learned .* pass it as unlabelled"),
    ],
)
def test_a_marker_that_is_not_in_y_is_a_warning(mark, names, words, data):
    X, _, few, _ = data
    y = np.array(names)[few]
    clf = small(unlabelled_label=mark)
    with pytest.warns(
        UserWarning, match=f"no rows with unlabelled_label={re.escape(repr(mark))}.*{words}"
    ):
        assert len(clf.fit(X, y).classes_) == 4
    assert 0 <= clf.score(X, y) <= 1  # without a warning: the marker is a matter of fit


def test_a_class_that_looks_like_a_marker_can_be_named(data):
    X, _, few, _ = data
    named = small().fit(X, few, classes=[-1, 0, 1, 2])
    assert named.classes_.tolist() == [-1, 0, 1, 2]
    named.score(X, few)
    clf = small().fit(X[few >= 0], few[few >= 0])
    with pytest.warns(UserWarning, match="-1 in y counts as a wrong prediction; set unlabelled"):
        clf.score(X, few)


@pytest.mark.parametrize("dtype", [object, str])
def test_labels_may_be_strings(dtype, data):
    X, _, few, _ = data
    names = np.array([["a", "b", "c", "?"][label] for label in few], dtype=dtype)
    clf = small(unlabelled_label="?").fit(X, names)
    assert clf.classes_.tolist() == ["a", "b", "c"]
    numbers = small(unlabelled_label=-1).fit(X, few)
    np.testing.assert_array_equal(clf.coefs_[0], numbers.coefs_[0])


def test_the_score_leaves_them_out(data):
    X, _, few, _ = data
    clf = small(unlabelled_label=-1, max_iter=5).fit(X, few)
    known, weights = few >= 0, np.random.default_rng(0).uniform(size=90)
    hits = clf.predict(X[known]) == few[known]
    assert clf.score(X, few) == pytest.approx(hits.mean())
    expected = np.average(hits, weights=weights[known])
    assert clf.score(X, few.tolist(), sample_weight=weights) == pytest.approx(expected)
    assert clf.score(X, few, sample_weight=2.0) == clf.score(X, few)
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        clf.score(X, few, sample_weight=-weights)
    with pytest.raises(ValueError, match="y has no labelled rows: all 5"):
        clf.score(X[:5], np.full(5, -1))


@pytest.mark.parametrize("kind", [float, object, str, "Int64"])
def test_labels_that_are_missing_are_no_class(kind, data):
    X, _, few, _ = data
    known = few >= 0
    y = few.astype(object) if kind is not str else np.array(["a", "b", "c", ""], object)[few]
    y[~known] = np.nan if kind is float else None
    y = pd.Series(y, dtype="Int64") if kind == "Int64" else y
    y = y[:, None] if kind is float else y  # a column of a table
    clf = clone(small(unlabelled_label=float("nan"), validation_split=(X, y)))
    numbers = small(unlabelled_label=-1, validation_split=(X, few)).fit(X, few)
    for own in (clf.fit(X, y), small(unlabelled_label=np.nan)):
        own.partial_fit(X, y, classes=clf.classes_)
    assert len(clf.classes_) == 3
    numbers.partial_fit(X, few, classes=[0, 1, 2])
    np.testing.assert_array_equal(clf.coefs_[0], numbers.coefs_[0])
    assert clf.score(X, y) == numbers.score(X, few)


@pytest.mark.filterwarnings("ignore:all labelled rows are of one class")
def test_labels_may_miss_a_class_that_is_named(data):
    X, y, _, _ = data
    some, clf = y != 1, small(validation_split=None)
    clf.fit(X[some], y[some], classes=[2, 1, 0])
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict_proba(X).shape == (90, 3)
    assert clf.fit(X[y == 0], y[y == 0], classes=[0, 1, 2]).score(X[y == 0], y[y == 0]) > 0.5
    for bad, words in ([0, 1], r"\[2\] that are not in"), ("ab", "must be a list"), ([2], "two"):
        with pytest.raises(ValueError, match=words):
            clf.fit(X[some], y[some], classes=bad)


# X_unlabelled


def test_an_initializer_learns_from_further_rows(data):
    X, y, few, further = data
    clf = small(warm_start_from=tiny()).fit(X, y, X_unlabelled=further)
    assert_learned_from(clf, np.vstack([X, further]))
    parts = small(warm_start_from=tiny()).fit(X, y, X_unlabelled=(further[:20], further[20:]))
    assert_learned_from(parts, np.vstack([X, further]))
    both = small(warm_start_from=tiny(), unlabelled_label=-1).fit(X, few, X_unlabelled=further)
    assert_learned_from(both, np.vstack([X, further]))


@pytest.mark.parametrize("start", [None, "auto", "fitted"])
def test_rows_that_nobody_learns_from_are_reported(start, data):
    X, y, _, further = data
    clf = small(warm_start_from=tiny().fit(X) if start == "fitted" else start)
    with pytest.warns(UserWarning, match="X_unlabelled is not used: no initializer is fitted"):
        with_them = clf.fit(X, y, X_unlabelled=further).coefs_[0]
    np.testing.assert_array_equal(clf.fit(X, y).coefs_[0], with_them)


def requested(**params):
    return small(warm_start_from=tiny(), **params).set_fit_request(X_unlabelled=True)


def test_a_tuple_is_never_divided_among_folds(data, routing):
    X, y, _, _ = data
    other = X[::-1].copy()  # as many rows as X
    for given, n_further in (((other,), 90), (other, 60)):
        fits.clear()
        params = {"X_unlabelled": given}
        cross_validate(requested(), X, y, cv=3, params=params, error_score="raise")
        assert fits == [60 + n_further] * 3


@pytest.mark.parametrize("wrap", [lambda further: further, lambda further: (further,)])
def test_a_pipeline_transforms_them_when_told(wrap, data, routing):
    X, y, _, further = data
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("clf", requested())], transform_input=["X_unlabelled"]
    )
    pipeline.fit(X, y, X_unlabelled=wrap(further))
    expected = pipeline[0].transform(np.vstack([X, further]))
    assert_learned_from(pipeline[-1], expected)
    params = {"X_unlabelled": wrap(further)}
    cross_validate(pipeline, X, y, cv=2, params=params, error_score="raise")
