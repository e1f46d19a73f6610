"""Several starts weighed by the labels: the mathematics, then the classifier."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_moons
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import get_tags

from nets import Conv, Counting, fits
from sklearn_mmdinit import MLPClassifier, MMDInitializer, NetClassifier, StackedStartsClassifier
from sklearn_mmdinit.fine_tuning.labels import stratified_folds
from sklearn_mmdinit.stacking import (
    advantage,
    fitted_temperature,
    stacking_weights,
    tempered,
)

TINY = {"n_perturbations": 4, "max_iter": 1, "window": 2}

# the mathematics


@pytest.fixture
def drawn():
    """Probabilities (n, 4) and classes drawn from them."""
    rng = np.random.default_rng(0)
    proba = softmax(rng.normal(scale=1.5, size=(20_000, 4)), axis=1)
    return proba, (proba.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)


@pytest.mark.parametrize("sureness", [0.5, 1.0, 3.0, 8.0])
def test_the_temperature_of_a_model_that_is_too_sure_is_found(sureness, drawn):
    proba, y = drawn
    sure = np.exp(tempered(proba, 1.0 / sureness))
    found = fitted_temperature(sure, y)
    assert found == pytest.approx(sureness, rel=0.05)
    np.testing.assert_allclose(np.exp(tempered(sure, sureness)), proba, atol=1e-6)
    assert log_loss(y, np.exp(tempered(sure, found))) <= log_loss(y, sure)


def test_a_temperature_is_finite_where_all_or_none_is_right():
    certain, y = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]], np.array([0, 1, 2, 0])
    for classes in (y, (y + 1) % 3):
        found = fitted_temperature(certain, classes)
        assert 0.1 < found < 60
        assert np.isfinite(tempered(certain, found)).all()


@pytest.mark.parametrize("n_models", [1, 2, 4])
def test_em_climbs_to_the_greatest_likelihood_on_the_simplex(n_models):
    likelihoods = np.random.default_rng(n_models).beta(0.5, 0.5, size=(30, n_models))

    def climbed(n_steps):
        weights = stacking_weights(likelihoods, 0.0, n_steps)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights >= 0).all()
        return np.log(likelihoods @ weights).sum()

    path = [climbed(n_steps) for n_steps in (0, 1, 2, 5, 20, 100, 1000)]
    assert (np.diff(path) >= -1e-9).all()
    best = minimize(lambda z: -np.log(likelihoods @ softmax(z)).sum(), np.zeros(n_models))
    assert path[-1] == pytest.approx(-best.fun, abs=1e-3)


def test_weights_known_by_hand():
    # Of two models, each sure of a share of the rows and without an idea of the others.
    one = np.repeat([1.0, 1e-12], [30, 10])
    np.testing.assert_allclose(stacking_weights(np.stack([one, one[::-1]], 1)), 0.5)
    for prior, expected in ((0.0, 30 / 40), (1.0, 31 / 42)):
        found = stacking_weights(np.stack([one, 1.0 - one], axis=1), prior)
        np.testing.assert_allclose(found, [expected, 1 - expected], atol=1e-6)
    np.testing.assert_allclose(stacking_weights(np.full((5, 3), 0.2)), 1 / 3)


def test_an_advantage_is_counted_in_standard_errors():
    reference = np.full(400, 0.5)
    ratios = np.exp(np.tile([0.1, -0.05], 200))
    expected = 0.025 / (0.075 * np.sqrt(400 / 399) / 20)
    assert advantage(reference * ratios, reference) == pytest.approx(expected)
    assert advantage(reference, reference * ratios) == pytest.approx(-expected)
    assert advantage(reference, reference) == advantage(reference[:1], ratios[:1]) == 0.0


@pytest.mark.parametrize("counts", [[5, 5, 5], [1, 7, 2], [2, 2], [40, 6]])
def test_every_class_is_in_every_training_part(counts):
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    folds = stratified_folds(y, 5, seed=0)
    assert len(folds) == min(5, max(counts))
    held_out = np.concatenate([test for _, test in folds])
    several = np.flatnonzero(np.bincount(y)[y] > 1)
    np.testing.assert_array_equal(np.sort(held_out), several)
    for train, test in folds:
        np.testing.assert_array_equal(np.sort([*train, *test]), np.arange(len(y)))
        assert set(y[train]) == set(y)
    for too_few in ([0, 1, 2, 3], [0, 1, 1, 1, 2]):  # of one class no fold can tell anything
        assert stratified_folds(np.array(too_few), 5, seed=0) == []


# the classifier


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


@pytest.fixture(scope="module")
def coherent(digits):
    init = MMDInitializer((64,), n_classes=10, coherence="auto", max_iter=8, random_state=0)
    return init.fit(digits[0])


def network(**params):
    own = {"max_iter": 30, "validation_split": None, **params}
    return MLPClassifier((64,), **own)


def stacked(*starts, **params):
    own = {"classifiers": [], "random_state": 0, **params}
    return StackedStartsClassifier(network(), [*starts], **own)


def test_what_helps_gets_weight_and_probabilities_that_can_be_believed(digits, coherent):
    X, y = digits
    clf = stacked(None, coherent).fit(X[:100], y[:100])
    assert clf.weights_[1] > 0.5
    assert clf.weights_.sum() == pytest.approx(1.0)
    assert clf.advantage_ > clf.min_advantage
    assert clf.log_losses_[1] < clf.log_losses_[0]
    proba = clf.predict_proba(X[100:])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    for own in clf.estimators_:
        assert clf.score(X[100:], y[100:]) > own.score(X[100:], y[100:]) - 0.01
        assert log_loss(y[100:], proba) < log_loss(y[100:], own.predict_proba(X[100:]))


def test_where_nothing_helps_the_first_start_keeps_the_weight(digits):
    X, y = digits[0][:60], digits[1][:60]
    # Weights that were not learned; and labels that nothing is learned of.
    other = MMDInitializer((64,), n_classes=10, max_iter=0, random_state=5).fit(X)
    noise = np.random.default_rng(0).permutation(y)
    for labels, starts in ((y, [None, None]), (noise, [None, other])):
        clf = stacked(*starts).fit(X, labels)
        assert clf.weights_[0] > 0.85
    assert clf.temperatures_[0] > 2.0, "noise is no reason to be sure"
    cautious = clf.set_params(min_advantage=50.0).fit(X, noise)
    assert cautious.weights_.tolist() == [1.0, 0.0]
    alone = cautious.estimators_[0]
    np.testing.assert_array_equal(alone.predict(X), cautious.predict(X))
    expected = tempered(alone.predict_proba(X), clf.temperatures_[0])
    np.testing.assert_allclose(cautious.predict_proba(X), np.exp(expected))


def test_another_classifier_is_weighed_along_and_has_a_voice_in_the_plain_vote():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 30))
    y = (np.abs(X[:, 0]) > 0.7).astype(int)  # one column of thirty: what trees are for
    tree = DecisionTreeClassifier(max_depth=3)
    clf = stacked(None, None, classifiers=[tree]).fit(X[:200], y[:200])
    assert clf.weights_[2] > 0.8
    assert clf.score(X[200:], y[200:]) > clf.estimators_[0].score(X[200:], y[200:]) + 0.1
    assert clf.estimators_[2].random_state is not None
    assert not hasattr(tree, "tree_")
    cautious = clf.set_params(min_advantage=50.0).fit(X[:200], y[:200])
    np.testing.assert_allclose(cautious.weights_, [0.5, 0.0, 0.5], atol=1e-12)
    parts = zip(cautious.estimators_[::2], cautious.temperatures_[::2], strict=True)
    expected = np.mean([np.exp(tempered(own.predict_proba(X), T)) for own, T in parts], axis=0)
    np.testing.assert_allclose(cautious.predict_proba(X), expected)


@pytest.mark.parametrize(
    "around", [clone, make_pipeline, lambda one: GridSearchCV(one, {"passthrough": [False]}, cv=2)]
)
def test_a_classifier_may_score_by_parts_that_its_fit_makes(around, digits):
    X, y = digits[0][digits[1] < 3][:60], digits[1][digits[1] < 3][:60]
    linear = [("linear", LogisticRegression())]
    stack = around(StackingClassifier(linear, cv=2))  # its final estimator is a LogisticRegression
    params = {"estimator": MLPClassifier((8,), max_iter=1), "starts": [None], "student": None}
    clf = StackedStartsClassifier(classifiers=[stack], cv=2, **params).fit(X, y)
    assert clf.weights_[1] > 0
    clf.set_params(classifiers=[make_pipeline(VotingClassifier(linear))])  # votes, no scores
    with pytest.raises(TypeError, match="predict_proba"):
        clf.fit(X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_become_probabilities_by_their_temperature(n_classes):
    X = np.random.default_rng(0).normal(size=(900, 4))
    y = np.digitize((X**2).sum(axis=1), [2.5, 5.0][: n_classes - 1])  # shells, as a kernel sees
    clf = stacked(None, classifiers=[SVC(C=10.0)]).fit(X[:150], y[:150])
    kernel, T = clf.estimators_[1], clf.temperatures_[1]
    scores = kernel.decision_function(X[150:])
    scores = np.column_stack([np.zeros(750), scores]) if n_classes == 2 else scores
    own = softmax(scores / T, axis=1)
    assert (own.argmax(axis=1) == kernel.predict(X[150:])).mean() > 0.99
    assert log_loss(y[150:], own) < 0.9 * log_loss(y[150:], softmax(scores * T, axis=1))
    net = np.exp(tempered(clf.estimators_[0].predict_proba(X[150:]), clf.temperatures_[0]))
    expected = clf.weights_[0] * net + clf.weights_[1] * own
    np.testing.assert_allclose(clf.predict_proba(X[150:]), expected)
    # A temperature of scores needs labels that were held out.
    one_each = [np.flatnonzero(y == c)[0] for c in range(n_classes)]
    others = [SVC(), DecisionTreeClassifier(), LogisticRegression()]
    clf = stacked(None, None, classifiers=others).fit(X[one_each], y[one_each])
    np.testing.assert_allclose(clf.weights_, np.array([2, 2, 0, 1, 1]) / 6)
    assert clf.temperatures_.tolist() == [3.0, 3.0, 1.0, 1.0, 1.0]
    assert np.isnan(clf.log_losses_).all()


def test_a_class_that_only_networks_know_gets_nothing_from_others(digits):
    X, y = digits[0][:60], digits[1][:60] % 3
    others = [make_pipeline(StandardScaler(), RandomForestClassifier(5))]
    # Of pairs of classes are its scores, but not its probabilities.
    others += [CalibratedClassifierCV(SVC(decision_function_shape="ovo"), cv=2)]
    first, again = (stacked(None, classifiers=others).fit(X, y, classes=range(4)) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    net = np.exp(tempered(first.estimators_[0].predict_proba(X), first.temperatures_[0]))
    found = first.predict_proba(X)
    np.testing.assert_allclose(found[:, 3], first.weights_[0] * net[:, 3])
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_rows_without_a_label_spread_labels_and_teach_a_student_by_guesses():
    X, truth = make_moons(300, noise=0.08, random_state=0)
    y = np.full(300, "none")
    for name, label in (("up", 0), ("down", 1)):
        y[np.flatnonzero(truth == label)[:3]] = name
    known, right = y != "none", np.where(truth == 0, "up", "down")
    alone = stacked(None, classifiers="auto").fit(X[known], y[known])
    clf = stacked(None, classifiers="auto", unlabelled_label="none").fit(X, y)
    assert [len(own.estimators_) for own in (alone, clf)] == [5, 7]
    assert clf.score(X, right) > alone.score(X, right)
    assert clf.estimators_[-2].score(X, right) > alone.score(X, right) + 0.1
    student, share = clf.estimators_[-1], 294 / 300 / 3
    assert clf.weights_[-1] == pytest.approx(share)
    assert clf.weights_.sum() == pytest.approx(1.0)
    without = clone(clf).set_params(student=None).fit(X, y)
    others = without.predict_proba(X)
    expected = (1 - share) * others + share * student.predict_proba(X)
    np.testing.assert_allclose(clf.predict_proba(X), expected, atol=1e-9)
    # Guesses are those of the others, as heavy as they are sure.
    own = RandomForestClassifier(100, min_samples_leaf=3, random_state=student.random_state)
    guesses = without.classes_[others[~known].argmax(axis=1)]
    weights = np.r_[np.ones(6), others[~known].max(axis=1)]
    rows = np.concatenate([X[known], X[~known]]), np.concatenate([y[known], guesses])
    own.fit(*rows, sample_weight=weights)
    np.testing.assert_array_equal(own.predict_proba(X), student.predict_proba(X))
    # Spread labels have to earn their weight; where none can be held out, there is no student.
    cautious = clone(without).set_params(min_advantage=50.0).fit(X, y)
    np.testing.assert_allclose(cautious.weights_, [0.2, 0.2, 0.2, 0.2, 0.2, 0.0], atol=1e-12)
    one_each = np.where(
        np.isin(np.arange(300), [np.argmax(y == "up"), np.argmax(y == "down")]), y, "none"
    )
    alone = clone(clf).fit(X, one_each)
    np.testing.assert_allclose(alone.weights_, np.array([3, 1, 1, 1, 0, 3]) / 9)
    # Further rows are as good as those in X.
    again = clone(clf).fit(X[known], y[known], X_unlabelled=(X[~known][:150], X[~known][150:]))
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), atol=1e-6)


def test_what_is_wrong_with_a_start_is_told_before_any_learns(digits, coherent):
    X, y = digits
    endless, wide = MMDInitializer((64,), max_iter=10**9), MMDInitializer((65,))
    with pytest.raises(ValueError, match=r"hidden_layer_sizes=\(65,\)"):
        stacked(endless, wide).fit(X, y)
    frame = pd.DataFrame(X).rename(columns=str)
    with pytest.raises(ValueError, match="fitted with '0' as column 0, and X has '63' there"):
        stacked(clone(coherent).set_params(max_iter=1).fit(frame)).fit(frame.iloc[:, ::-1], y)
    some = np.where(np.arange(60) < 30, y[:60] % 2, -1)
    with pytest.warns(UserWarning, match="y has no rows with unlabelled_label=-1"):
        OneVsRestClassifier(stacked(None, unlabelled_label=-1)).fit(X[:60], some)


def test_auto_is_fresh_weights_learned_features_and_other_classifiers(digits, monkeypatch):
    X, y = digits[0][:40], digits[1][:40] % 3
    short = partial(MMDInitializer, **TINY)
    monkeypatch.setattr("sklearn_mmdinit.learned_features.MMDInitializer", short)
    network = MLPClassifier((7,), activation="tanh", max_iter=2)
    clf = StackedStartsClassifier(network, cv=2, random_state=0).fit(X, y)
    assert clf.starts_ == [None]
    logistics = ["logistic, C=0.01", "logistic, C=1"]
    names = ["network, fresh weights", "learned features", "forest", *logistics, "svc"]
    assert clf.names_ == names
    assert len(clf.weights_) == len(clf.estimators_) == len(names)
    long, corrupted = clf.features_.initializers_
    assert (long.config_.coherence.walk_length, corrupted.config_.coherence.walk_length) == (40, 2)
    assert long.config_.n_classes == 3
    features = clf.features_.transform(X)
    expected = LogisticRegression(C=100, max_iter=1000).fit(features, y).predict_proba(features)
    np.testing.assert_allclose(clf.estimators_[1].predict_proba(X), expected, atol=1e-6)
    plain = StackedStartsClassifier(network, features=None, cv=2, random_state=0).fit(X, y)
    assert plain.names_ == [name for name in names if name != "learned features"]
    images = X.reshape(-1, 1, 8, 8).astype("float32")
    of_module = NetClassifier(Conv, module__width=5, max_iter=2)
    clf = StackedStartsClassifier(of_module, cv=2, random_state=0).fit(images, y)
    assert clf.predict_proba(images).shape == (40, 3)
    assert clf.starts_[1].module is Conv
    assert clf.names_ == ["network, fresh weights", "network 1", "network 2"], "nothing else"


def test_sparse_rows_and_weights_reach_the_members_that_take_them(digits):
    X, y = digits[0][:60], digits[1][:60] % 3
    some = np.where(np.arange(60) % 2, -1, y)
    network = MLPClassifier((7,), max_iter=2)
    clf = StackedStartsClassifier(network, unlabelled_label=-1, cv=2, random_state=0)
    assert get_tags(clf).input_tags.sparse
    clf.fit(csr_array(X), some)
    assert "svc" in clf.names_
    assert clf.names_[-1] == "student"
    assert not {"spread labels", "learned features"} & set(clf.names_)
    np.testing.assert_allclose(clf.predict_proba(csr_array(X)), clf.predict_proba(X), atol=1e-6)
    tree = DecisionTreeClassifier(random_state=0)
    params = {"classifiers": [tree], "student": None, "cv": 2, "random_state": 0}
    weighed = StackedStartsClassifier(network, [None], **params)
    weights = np.where(np.arange(60) < 40, 1.0, 0.0)
    weighed.fit(X, y, sample_weight=weights)
    alone = clone(weighed).fit(X[:40], y[:40])
    np.testing.assert_allclose(weighed.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_the_seed_reaches_a_student_in_another_estimator(digits):
    X, y = digits[0][:60], digits[1][:60] % 3
    some = np.where(np.arange(60) % 2, -1, y)
    student = CalibratedClassifierCV(RandomForestClassifier(3), ensemble=False)
    clf = stacked(None, student=student, unlabelled_label=-1)
    first, second = (clone(clf).fit(X, some).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_weights_reach_the_last_step_of_a_pipeline_in_a_pipeline(digits):
    X, y = digits[0][:60], digits[1][:60] % 3
    weights = np.random.default_rng(0).uniform(size=60)
    bayes = GaussianNB(priors=np.array([0.2, 0.3, 0.5]))  # a parameter that is an array
    nested = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), bayes))
    clf = stacked(None, classifiers=[nested], student=None).fit(X, y, sample_weight=weights)
    expected = nested.fit(X, y, pipeline__gaussiannb__sample_weight=weights).predict_proba(X)
    np.testing.assert_array_equal(clf.estimators_[1].predict_proba(X), expected)


def test_starts_learn_once_from_all_rows_before_any_label_is_looked_at(digits):
    X, y = digits
    some = np.where(np.arange(90) % 3, -1, y[:90] % 3)
    fits.clear()
    clf = stacked(None, Counting((64,), n_classes=3), unlabelled_label=-1).set_params(cv=2)
    clf.fit(X[:90], some, X_unlabelled=(X[90:100], X[100:105]))
    assert fits == [105]
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.score(X[:90], some) == np.mean(clf.predict(X[:90:3]) == y[:90:3] % 3)
    twice = clone(clf).set_params(estimator__unlabelled_label=-1)  # said in both places
    twice.fit(X[:90], some, X_unlabelled=(X[90:100], X[100:105]))
    np.testing.assert_array_equal(twice.predict_proba(X), clf.predict_proba(X))
    del fits[1:]
    with sklearn.config_context(enable_metadata_routing=True):
        clf.set_fit_request(X_unlabelled=True)
        cross_val_score(clf, X[:90], some, cv=2, params={"X_unlabelled": (X[90:99],)})
    assert fits[1:] == [54, 54]
    with pytest.raises(ValueError, match=r"X has 3 features, .*\nX_unlabelled"):
        clf.fit(X[:90], some, X_unlabelled=X[:5, :3])


def test_what_is_fitted_stays_so_in_clones_searches_and_pipelines(digits, coherent):
    X, y = digits[0][:60], digits[1][:60]
    clf = stacked(None, coherent, FrozenEstimator(coherent), cv=2)
    assert clone(clf).starts[1] is coherent
    assert clf.fit(X, y).starts_[1] is coherent
    assert not hasattr(clone(stacked(MMDInitializer((64,)))).starts[0], "theta0_")
    pipe = make_pipeline("passthrough", clf)
    grid = {"stackedstartsclassifier__estimator__max_iter": [1, 2]}
    search = GridSearchCV(pipe, grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_estimator_[-1].starts[1] is coherent


def test_figures_are_those_of_the_seed_in_any_number_of_processes(digits, coherent):
    X, y = digits[0][:60], digits[1][:60].astype(str)
    clf = stacked(None, coherent, cv=2).fit(X, y)
    expected = clf.predict_proba(X)
    again = clone(clf).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_allclose(again.predict_proba(X), expected, atol=1e-6)
    np.testing.assert_allclose(again.temperatures_, clf.temperatures_, rtol=1e-4)
    assert (clone(clf).set_params(random_state=1).fit(X, y).predict_proba(X) != expected).any()


def test_settings_that_would_be_lost_are_refused(digits):
    X, y = digits
    pairs = stacked(None, classifiers=[SVC(decision_function_shape="ovo")])
    with pytest.raises(ValueError, match="scores pairs of them; set decision_function_shape='ovr'"):
        pairs.fit(X[:60], y[:60] % 3)
    marked = stacked(None).set_params(estimator__unlabelled_label=-1)
    with pytest.raises(ValueError, match="give it to StackedStartsClassifier"):
        marked.fit(X[:60], y[:60] % 3)
