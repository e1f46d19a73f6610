"""LearnedFeatures: the row beside unit-length features of one or several initializers."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from nets import Conv
from sklearn_mmdinit import LearnedFeatures, MLPClassifier, MMDInitializer

SHORT = {"max_iter": 1, "n_perturbations": 4, "window": 2}
unfitted = partial(MMDInitializer, (8, 5), **SHORT)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:120] / 16, y[:120]


@pytest.fixture(scope="module")
def fitted(digits):
    return unfitted(random_state=3).fit(digits[0])


def test_a_row_of_mean_length_1_stands_beside_features_of_length_1(digits, fitted):
    X = digits[0]
    features = LearnedFeatures([fitted, unfitted()], random_state=0).fit(X)
    out = features.transform(X)
    assert (out.shape, out.dtype) == ((120, 64 + 5 + 5), np.float32)
    row, *learned = np.split(out, [64, 69], axis=1)
    assert_allclose(row, X / np.linalg.norm(X, axis=1).mean(), rtol=1e-6)
    for init, columns in zip(features.initializers_, learned, strict=True):
        hidden = clone(init).set_params(output="hidden").fit(X).transform(X)
        assert_allclose(columns, normalize(hidden), atol=1e-6)
    without = clone(features).set_params(with_row=False).fit(X)
    assert_array_equal(without.transform(X), out[:, 64:])
    assert_allclose(features.transform(X.astype(np.float32)), out, atol=1e-6)
    # A row of which a network makes nothing stays zero.
    zeros = features.transform(np.zeros((1, 64)))
    assert np.isfinite(zeros).all()
    assert not zeros[:, :64].any()
    dead = MMDInitializer((5,), **SHORT | {"max_iter": 0}).fit(X)  # biases of 0
    assert not LearnedFeatures([dead]).fit(X * 0).transform(X[:3] * 0).any()


def test_columns_have_the_names_of_the_row_and_of_units(digits, fitted):
    frame = pd.DataFrame(digits[0]).rename(columns=lambda i: f"pixel{i}")
    features = LearnedFeatures([fitted]).fit(frame).set_output(transform="pandas")
    names = [*frame.columns, *(f"learnedfeatures0_{unit}" for unit in range(5))]
    assert features.transform(frame).columns.tolist() == names
    assert features.get_feature_names_out().tolist() == names
    assert (
        LearnedFeatures([fitted], with_row=False).fit(frame).get_feature_names_out()[0] == names[64]
    )
    with sklearn.config_context(transform_output="pandas"):
        again = clone(features).fit(frame)
        assert_array_equal(again.transform(frame), features.transform(frame))
    named = unfitted().fit(frame)
    with pytest.raises(ValueError, match="fitted with 'pixel0' as column 0, and X has 'pixel63'"):
        LearnedFeatures([named]).fit(frame.iloc[:, ::-1])
    assert LearnedFeatures([named]).fit(digits[0]).transform(digits[0][:2]).shape == (2, 69)


def test_fitted_initializers_stay_as_they_are_in_clones_searches_and_processes(digits, fitted):
    X, y = digits[0], digits[1] % 2
    given = [fitted, FrozenEstimator(fitted), unfitted()]
    features = LearnedFeatures(given, random_state=0, n_jobs=2).fit(X)
    assert features.initializers_[0] is fitted
    assert features.initializers_[1] is given[1]
    assert features.initializers_[2] is not given[2]
    assert not hasattr(given[2], "theta0_")
    cloned = clone(features)
    assert cloned.initializers[0] is fitted
    assert not hasattr(cloned.initializers[2], "theta0_")
    sequential = cloned.set_params(n_jobs=None).fit(X)
    assert_allclose(sequential.transform(X), features.transform(X), atol=1e-5)
    pipe = make_pipeline(LearnedFeatures([fitted]), LogisticRegression(C=100, max_iter=1000))
    grid = {"learnedfeatures__with_row": [False, True]}
    search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_[0].initializers_[0] is fitted


def test_each_initializer_has_its_own_seed_and_follows_random_state(digits, fitted):
    X = digits[0]
    of = {}
    for seed in (0, 1):
        both = [unfitted(), unfitted(), unfitted(random_state=3)]
        of[seed] = LearnedFeatures(both, with_row=False, random_state=seed).fit(X).transform(X)
        again = LearnedFeatures(both, with_row=False, random_state=seed).fit(X).transform(X)
        assert_array_equal(again, of[seed])
    first, second, third = np.split(of[0], 3, axis=1)
    assert (first != second).any()
    assert (first != of[1][:, :5]).any()
    own = LearnedFeatures([fitted], with_row=False).fit(X).transform(X)
    assert_array_equal(third, own)
    assert_array_equal(of[1][:, 10:], own)


def test_auto_is_two_perceptrons_with_coherence(digits, monkeypatch):
    X, y = digits
    short = partial(MMDInitializer, **SHORT)
    monkeypatch.setattr("sklearn_mmdinit.learned_features.MMDInitializer", short)
    auto = LearnedFeatures(hidden_layer_sizes=(7,), random_state=0)
    long, corrupted = auto.fit(X).initializers_
    assert (long.config_.coherence.walk_length, corrupted.config_.coherence.walk_length) == (40, 2)
    assert "Dropout" in repr(corrupted)
    assert auto.transform(X).shape == (120, 64 + 7 + 7)
    logistic = make_pipeline(FrozenEstimator(auto), LogisticRegression(C=100, max_iter=1000))
    assert logistic.fit(X[:60], y[:60]).score(X[60:], y[60:]) > 0.7
    with pytest.raises(ValueError, match=r"'auto' are perceptrons, .*\(8, 8\); give X.reshape"):
        auto.fit(X.reshape(-1, 8, 8))


def test_classes_come_from_y_or_from_n_classes(digits):
    X, y = digits
    few = np.where(np.arange(120) < 60, y, -1)

    def n_classes(y=None, **params):
        init = LearnedFeatures([unfitted(), unfitted(n_classes=3)], **params).fit(X, y)
        return [each.theta0_.architecture.n_classes for each in init.initializers_]

    assert n_classes() == [2, 3]
    assert n_classes(y) == n_classes(few) == n_classes(few.astype(object)) == [10, 3]
    assert n_classes(pd.Series(few, dtype="Int64").replace(-1, pd.NA)) == [10, 3]
    assert n_classes(n_classes=4) == n_classes(y, n_classes=4) == [4, 3]


def test_examples_of_a_module_may_have_any_shape(digits):
    images = digits[0].reshape(-1, 1, 8, 8).astype(np.float32)
    features = LearnedFeatures([MMDInitializer(module=Conv, module__width=5, **SHORT)]).fit(images)
    assert features.transform(images).shape == (120, len(features.get_feature_names_out()))
    assert features.n_features_in_ == 64
    with pytest.raises(ValueError, match=r"shape \(1, 4, 16\), fit saw shape \(1, 8, 8\)"):
        features.transform(images.reshape(-1, 1, 4, 16))
    # A parametrized layer has no array of the name "weight".
    last = register_parametrization(nn.Linear(7, 3), "weight", nn.Identity())
    layers = nn.Linear(64, 7), nn.ReLU(), last
    init = MMDInitializer(module=nn.Sequential(*layers), **SHORT)
    features = LearnedFeatures([init], with_row=False).fit(digits[0])
    assert len(features.get_feature_names_out()) == features.transform(digits[0]).shape[1] == 7


def test_what_is_wrong_is_said_before_an_initializer_learns(digits, fitted):
    X, y = digits
    endless = MMDInitializer((4,), max_iter=10**9)
    for second, error, message in (
        (3, TypeError, r"initializers\[1\] must be an initializer, fitted or not, got 3"),
        (MLPClassifier(), TypeError, r"initializers\[1\] must be"),
        (FrozenEstimator(endless), NotFittedError, r"initializers\[1\] is frozen and not fitted"),
        (unfitted().fit(X[:, :3]), ValueError, r"initializers\[1\] was fitted to .* \(3,\)"),
        (unfitted(gain=-1), ValueError, r"'gain' (?s:.*)initializers\[1\]"),
    ):
        with pytest.raises(error, match=message):
            LearnedFeatures([endless, second]).fit(X)
    with pytest.raises(NotFittedError):
        LearnedFeatures([fitted]).transform(X)
    with pytest.warns(UserWarning, match="40 labelled rows alone, .*put FrozenEstimator"):
        LearnedFeatures([unfitted()]).fit(X[:40], y[:40])
    LearnedFeatures([fitted]).fit(X[:40], y[:40])  # learns nothing
