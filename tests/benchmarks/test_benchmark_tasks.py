"""The draws are what the protocol says; methods are paired, and start from what they are given."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import normalize

from data.datasets import load_digits_dataset, standardize
from nets import assert_same_arrays
from protocol import methods
from protocol.networks import NormalizedPerceptron
from protocol.tasks import Task, draw_rows, fit_seed, random_tasks, tasks_of_runs
from protocol.theta0s import Pretrained, theta0_digest
from sklearn_mmdinit import Coherence, MMDInitializer

Y = np.arange(1000) % 10
LOPSIDED = Task(0, 0, (1, 0, 0, 0, 0, 0, 0, 0, 0, 0))

# Tasks


def test_tasks_use_both_values_and_are_distinct():
    for seed in (0, 1, 7):
        tasks = [task.values for task in random_tasks(10, 200, seed=seed, run=0)]
        assert all(set(values) == {0, 1} for values in tasks)
        assert len(set(tasks)) == len(tasks)
    assert len({task.values for task in random_tasks(3, 6, seed=0, run=0)}) == 6 == 2**3 - 2
    values = np.array([task.values for task in random_tasks(10, 600, seed=0, run=0)])
    # 600 fair coins a digit: five standard deviations are 0.1.
    assert np.abs(values.mean(axis=0) - 0.5).max() < 0.1


def test_more_tasks_leave_the_first_ones_alone_and_runs_and_seeds_have_others():
    assert random_tasks(10, 20, seed=3, run=1)[:5] == random_tasks(10, 5, seed=3, run=1)
    of = {(s, r): random_tasks(10, 20, seed=s, run=r) for s in (0, 1) for r in (0, 1)}
    assert len({tuple(task.values for task in tasks) for tasks in of.values()}) == 4


def test_what_is_drawn_for_a_purpose_does_not_change_by_a_new_one():
    # Figures of today.
    task = random_tasks(10, 1, seed=0, run=0)[0]
    assert task.values == (0, 1, 1, 1, 1, 0, 0, 1, 1, 1)
    assert draw_rows(Y, task, 5, seed=0)[:4].tolist() == [16, 467, 360, 475]
    assert fit_seed(task, seed=0) == 2103646603


# Rows


def parts(rows):
    """Of a binary task, those to train on and those to validate with."""
    return np.split(rows, [len(rows) * 10 // 12])


@pytest.mark.parametrize("n_labels", [1, 3, 5, 40])
def test_rows_are_distinct_of_the_right_number_and_have_both_labels(n_labels):
    # At N = 1 a third of all uniform draws has one label, and must be redrawn.
    for index in range(30):
        task = Task(0, index, LOPSIDED.values)
        rows = draw_rows(Y, task, n_labels, seed=0)
        train, _ = parts(rows)
        assert len(set(rows)) == len(rows) == 12 * n_labels
        assert set(task.apply(Y)[train]) == {0, 1}


def test_rows_follow_from_their_key_alone():
    task, other = random_tasks(10, 2, seed=0, run=0)
    ten_way = Task(0, 0, tuple(range(10)))
    keys = [(task, 0), (other, 0), (task, 1)]
    drawn = {i: tuple(draw_rows(Y, own, 5, seed=seed)[:50]) for i, (own, seed) in enumerate(keys)}
    drawn["ten_way"] = tuple(draw_rows(Y, ten_way, 5, seed=0))
    drawn["more"] = tuple(draw_rows(Y, task, 10, seed=0)[:50])
    assert len(set(drawn.values())) == len(drawn)
    assert tuple(draw_rows(Y, task, 5, seed=0)[:50]) == drawn[0]
    assert fit_seed(task, seed=0) != fit_seed(other, seed=0)


@pytest.mark.parametrize("n_labels", [1, 7, 100])
def test_a_draw_of_all_classes_has_n_rows_of_each_and_none_to_validate_with(n_labels):
    tasks = tasks_of_runs(Y, (n_labels,), n_tasks=3, n_runs=1, seed=0, classes=10)[0]
    draws = [draw_rows(Y, task, n_labels, seed=0) for task in tasks]
    for task, rows in zip(tasks, draws, strict=True):
        assert np.array_equal(np.bincount(Y[rows]), [n_labels] * 10)
        assert len(set(rows)) == len(rows) == 10 * n_labels
        assert np.array_equal(task.apply(Y), Y)
    assert len(set(map(tuple, draws))) == 3


@pytest.mark.parametrize(
    ("n_labels", "n_tasks", "more", "message"),
    [
        (84, 3, {}, "N = 84 is too many for 1000 training rows"),
        (101, 2, {"classes": 10}, "N = 101 is too many for .* 100 of the rarest class"),
        (5, 1023, {}, "n_tasks = 1023.*between 1 and 1022"),
    ],
)
def test_tasks_of_runs_that_cannot_be_had_are_refused(n_labels, n_tasks, more, message):
    with pytest.raises(ValueError, match=message):
        tasks_of_runs(Y, (1, n_labels), n_tasks=n_tasks, n_runs=2, seed=0, **more)


# Pre-trainings


def test_each_option_changes_the_pre_training_that_it_is_for_and_no_other():
    coherent = {"augmentation": "digits", "neighbors": "gradients", "separation": 4.0}
    changes = {option: (value, "+coherence") for option, value in coherent.items()}
    changes |= {"coherent_epochs": (3, "+coherence"), "kernels": ("mean", "/ours")}
    changes |= {"n_perturbations": (9, "/ours"), "classes": (10, "")}
    for name in {methods.theta0_of(name) for names in methods.NAMES_OF.values() for name in names}:
        if methods.initializer_of(name, methods.NetworkSettings()) is None:
            assert name.endswith("/scratch")
            continue
        for option, (value, suffix) in changes.items():
            plain = methods.initializer_of(name, methods.NetworkSettings())
            changed = methods.initializer_of(name, methods.NetworkSettings(**{option: value}))
            assert (repr(plain) != repr(changed)) == name.endswith(suffix), (name, option)


def test_pre_trainings_are_those_that_their_names_say():
    settings = methods.NetworkSettings((4,), epochs=7, n_perturbations=9, classes=3, kernels="mean")
    own = {"module__init": "he", "module__hidden_layer_sizes": (4,), "uniformity_weight": 1 / 9}
    own |= {"n_classes": 3, "max_iter": 7, "n_perturbations": 9, "random_state": 0}
    ours = MMDInitializer(module=NormalizedPerceptron, **own)
    assert repr(methods.initializer_of("he/fcn+bn/ours", settings)) == repr(ours)
    term = Coherence(separation=2.0)
    coherent = MMDInitializer((4,), n_classes=3, coherence=term, max_iter="auto", random_state=0)
    assert repr(methods.initializer_of(methods.FEATURES_THETA0, settings)) == repr(coherent)


# Pipelines


@pytest.fixture(scope="module")
def digits():
    dataset = load_digits_dataset()
    return np.concatenate(standardize(dataset)), dataset.y_train, dataset.y_test


def test_the_classifier_validates_with_the_validation_rows_of_the_draw(digits):
    # What reaches the classifier inside cross_val_score, in its order, is what the draw says.
    X, y_train, y_test = digits
    (task,) = random_tasks(10, 1, seed=0, run=0)
    rows, seen = draw_rows(y_train, task, 5, seed=0), []

    class Spy(methods.LastRowsSplit):
        def split(self, X, y=None, groups=None):
            (pair,) = super().split(X, y, groups)
            seen.append((np.asarray(X)[pair[0]], np.asarray(X)[pair[1]]))
            yield pair

    pipeline = methods.network_contender(methods.SCRATCH, methods.NetworkSettings((4,)), X).make(0)
    pipeline.set_params(mlpclassifier__validation_split=Spy())
    y = task.apply(np.concatenate([y_train, y_test]))
    cross_val_score(pipeline, X, y, cv=[(rows, np.arange(len(y_train), len(X)))])
    ((train, validation),) = seen
    for found, expected in zip((train, validation), parts(rows), strict=True):
        assert np.array_equal(found, X[expected])


SMALL = methods.NetworkSettings((6,), epochs=1, n_perturbations=4, coherent_epochs=1)


def _pretrained(name, X):
    fitted = methods.initializer_of(name, SMALL, n_pixels=64).fit(X[:64])
    return Pretrained(fitted, theta0_digest(fitted.theta0_), 0.0, None)


@pytest.mark.parametrize("name", ["xavier/fcn/ours", methods.FEATURES_THETA0, "convnet/ours"])
def test_a_pipeline_starts_from_the_theta0_it_was_given(name, digits):
    X = methods.rows_for("convnet" if name.startswith("convnet") else "mlp", digits[0])
    theta0 = _pretrained(name, X)
    contender = methods.contender_of(name, SMALL, X, theta0)
    classifier = clone(contender.make(0)).fit(X[:60], digits[1][:60] > 4)[-1]
    assert_same_arrays(classifier.theta0_, theta0.initializer.theta0_)
    # From coherence on all labelled rows, as the library does it; else by the paper's protocol.
    of_paper = isinstance(classifier.validation_split, methods.LastRowsSplit)
    assert of_paper == (name != methods.FEATURES_THETA0)
    assert contender.identity["theta0"] == theta0.digest
    ten_way = methods.network_contender(name, methods.NetworkSettings((6,), classes=10), X)
    assert ten_way.make(0)[-1].validation_split == (None if of_paper else "auto")


def test_the_identity_of_a_score_has_not_changed():
    # A change makes all old logs worthless.
    contender = methods.network_contender(
        methods.SCRATCH, methods.NetworkSettings(), np.zeros((2, 2))
    )
    sizes = {"hidden_layer_sizes": (392, 392, 392)}
    network = {"init": "xavier", "batch_norm": False, "pretraining": "scratch", **sizes}
    rates = {"learning_rate_init": 1e-3, "batch_size": 50, "max_iter": 10}
    fine_tuning = {"optimizer": "adam", **rates}
    identity = {"network": network, "fine_tuning": fine_tuning, "theta0": None}
    assert contender.identity == identity


def test_features_are_those_of_theta0_and_a_fold_does_not_learn_them_again(digits):
    X, y, _ = digits
    theta0 = _pretrained(methods.FEATURES_THETA0, X)
    fitted = theta0.initializer
    contender = methods.contender_of(methods.FEATURES, SMALL, X, theta0)
    assert contender.identity["theta0"] == theta0.digest
    assert "LogisticRegression(C=100.0" in contender.identity["pipeline"][-1]
    pipeline = clone(contender.make(0)).fit(X[:60], y[:60] > 4)
    hidden = np.maximum(X[:60] @ fitted.coefs_[0] + fitted.intercepts_[0], 0.0)
    hidden -= fitted.feature_mean_
    # The scale of theta0, which fine-tuning depends on, is of no account here.
    features = pipeline[0].transform(X[:60])
    np.testing.assert_allclose(features, normalize(hidden), rtol=1e-4, atol=1e-4)
