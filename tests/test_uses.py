"""The uses that the library is for, written as a user writes them."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import (
    MLPClassifier,
    MMDInitializer,
    RandomLabelInitializer,
    load_theta0,
    save_theta0,
)

INITIALIZERS = [MMDInitializer, RandomLabelInitializer]


@pytest.fixture(scope="module")
def unlabelled():
    return load_digits().data[500:756]


@pytest.fixture(scope="module")
def labelled():
    X, y = load_digits(return_X_y=True)
    return X[:120], (y[:120] % 2).astype(int)


def tiny(kind=MMDInitializer, **params):
    if kind is MMDInitializer:
        params.setdefault("n_perturbations", 8)
    defaults = {"hidden_layer_sizes": (12, 8), "max_iter": 1, "window": 2, "random_state": 0}
    return kind(**{**defaults, **params})


def tuned(**params):
    return MLPClassifier(**{"max_iter": 2, "batch_size": 25, "random_state": 0, **params})


@pytest.fixture(params=INITIALIZERS, ids=lambda kind: kind.__name__)
def init(request, unlabelled):
    return tiny(request.param).fit(StandardScaler().fit_transform(unlabelled))


def assert_starts_at(clf, init):
    """The weights after no epoch are theta0, and fit reports it as its start."""
    assert clf.theta0_.architecture == init.theta0_.architecture
    for found, expected in zip(clf.theta0_.coefs, init.coefs_, strict=True):
        np.testing.assert_array_equal(found, expected)


# warm_start_from a fitted initializer


def test_every_fold_and_candidate_starts_from_the_same_theta0(init, labelled):
    X, y = labelled
    clf = make_pipeline(StandardScaler(), tuned(warm_start_from=init))
    with parallel_config(backend="loky", n_jobs=2):
        scores = cross_val_score(clf, X, y, cv=3, error_score="raise")
        search = GridSearchCV(
            clf,
            {"mlpclassifier__learning_rate_init": [1e-2, 1e-3]},
            cv=2,
            error_score="raise",
        ).fit(X, y)
    assert scores.shape == (3,)
    np.testing.assert_array_equal(scores, cross_val_score(clf, X, y, cv=3))
    assert_starts_at(search.best_estimator_[-1], init)
    assert search.best_estimator_[-1].initializer_ is init
    assert_starts_at(clone(clf).fit(X, y)[-1], init)


def test_theta0_is_what_the_network_computes_with(init, labelled):
    X, y = labelled
    clf = tuned(warm_start_from=init, max_iter=0).fit(X, y)
    assert_starts_at(clf, init)
    hidden = np.asarray(X)
    for W, b in zip(init.coefs_[:-1], init.intercepts_[:-1], strict=True):
        hidden = np.maximum(hidden @ W + b, 0)
    logits = hidden @ init.coefs_[-1] + init.intercepts_[-1]
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(clf.predict_proba(X), proba, atol=1e-4)


def test_a_search_compares_starts(init, labelled, tmp_path):
    save_theta0(tmp_path / "theta0.safetensors", init)
    starts = [
        None,
        FrozenEstimator(init),
        init.theta0_,
        str(tmp_path / "theta0.safetensors"),
        load_theta0(tmp_path / "theta0.safetensors"),
    ]
    search = GridSearchCV(
        tuned(hidden_layer_sizes=(12, 8)),
        {"warm_start_from": starts},
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(*labelled)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores[1:])) == 1, "four ways to say the same start"


# warm_start_from an unfitted initializer


def test_parameters_of_an_unfitted_initializer_are_searched(labelled):
    search = GridSearchCV(
        make_pipeline(StandardScaler(), tuned(warm_start_from=tiny())),
        {"mlpclassifier__warm_start_from__degeneracy_weight": [0.0, 5.0]},
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(*labelled)
    best = search.best_estimator_[-1]
    weight = search.best_params_["mlpclassifier__warm_start_from__degeneracy_weight"]
    assert best.initializer_.degeneracy_weight == weight
    assert not hasattr(best.warm_start_from, "theta0_"), "the parameter itself stays unfitted"
    assert_starts_at(best, best.initializer_)


def test_it_learns_from_the_fold_alone(labelled):
    X, y = labelled
    scaled = StandardScaler().fit_transform(X[:80])
    alone = clone(tiny()).fit(scaled.astype(np.float32))
    clf = tuned(warm_start_from=tiny()).fit(scaled, y[:80])
    assert_starts_at(clf, alone)


def test_a_memory_shares_the_pre_training(labelled, tmp_path, monkeypatch):
    seen = []
    fit = MMDInitializer.fit

    def counted(self, X, y=None):
        seen.append(len(X))
        return fit(self, X, y)

    monkeypatch.setattr(MMDInitializer, "fit", counted)
    GridSearchCV(
        tuned(warm_start_from=tiny(), memory=str(tmp_path)),
        {"learning_rate_init": [1e-2, 1e-3, 1e-4]},
        cv=2,
        refit=False,
        error_score="raise",
    ).fit(*labelled)
    assert seen == [60, 60]


# an initializer as a step of a Pipeline


@pytest.fixture(params=INITIALIZERS, ids=lambda kind: kind.__name__)
def pipeline(request):
    return Pipeline(
        [
            ("scale", StandardScaler()),
            ("init", tiny(request.param)),
            ("clf", tuned(max_iter=0)),
        ]
    )


@pytest.mark.parametrize("warm_start_from", ["auto", "pipeline"])
def test_the_third_step_starts_where_the_second_ends(warm_start_from, pipeline, labelled):
    X, y = labelled
    pipeline.set_params(clf__warm_start_from=warm_start_from)
    for fitted in (pipeline.fit(X, y), clone(pipeline).fit(X, y)):
        assert_starts_at(fitted["clf"], fitted["init"])
        for W, start in zip(fitted["clf"].coefs_, fitted["init"].coefs_, strict=True):
            np.testing.assert_array_equal(W, start)
    assert pipeline.predict(X).shape == y.shape


def test_it_does_in_a_search_too(pipeline, labelled):
    search = GridSearchCV(
        pipeline.set_params(clf__max_iter=2, clf__warm_start_from="pipeline"),
        {"init__learning_rate_init": [1e-4, 1e-1], "clf__batch_size": [20, 30]},
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(*labelled)
    best = search.best_estimator_
    assert_starts_at(best["clf"], best["init"])
    assert best["init"].learning_rate_init == search.best_params_["init__learning_rate_init"]


def test_it_does_from_a_memory_too(pipeline, labelled, tmp_path):
    pipeline.set_params(memory=str(tmp_path), clf__warm_start_from="pipeline")
    first = clone(pipeline).fit(*labelled)
    again = clone(pipeline).fit(*labelled)
    assert_starts_at(again["clf"], first["init"])
    scores = cross_val_score(pipeline, *labelled, cv=2, n_jobs=2, error_score="raise")
    assert scores.shape == (2,)


def test_what_loses_theta0_on_the_way_is_reported(pipeline, labelled):
    pipeline.steps.insert(2, ("again", StandardScaler()))
    pipeline.set_params(clf__warm_start_from="pipeline")
    with pytest.raises(ValueError, match="carries no theta0"):
        pipeline.fit(*labelled)


def test_class_counts_that_differ_are_reported(pipeline, labelled):
    X, _ = labelled
    with pytest.raises(ValueError, match="n_classes=2, but y has n_classes=4"):
        pipeline.fit(X, np.arange(len(X)) % 4)
