"""The tasks, the rows drawn for them, the shared options, and the pipelines of the methods."""

import argparse

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from data.datasets import load_digits_dataset, standardize
from protocol import bench
from protocol.augmentations import AUGMENTATIONS
from protocol.bench import load_scaled, tasks_of_runs
from protocol.features import features_contender
from protocol.methods import (
    FEATURES,
    FEATURES_CV,
    FEATURES_THETA0,
    METHODS,
    NAMES,
    PAPER_METHODS,
    LastRowsSplit,
    NetworkSettings,
    initializer_of,
    network_contender,
    select_names,
)
from protocol.network_kinds import NETWORK_KINDS
from protocol.options import add_task_options
from protocol.tasks import (
    PURPOSES,
    Task,
    draw_rows,
    fit_seed,
    pretraining_seed,
    random_tasks,
    ten_way_tasks,
)
from reporting.paper import ACCURACY, N_LABELS, TASK_STD
from sklearn_mmdinit import MLPClassifier, MMDInitializer

# Tasks and rows


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_tasks_use_both_values_and_are_distinct(seed):
    tasks = [task.values for task in random_tasks(10, 200, seed=seed, run=0)]
    assert all(set(values) == {0, 1} for values in tasks)
    assert len(set(tasks)) == len(tasks)


def test_every_task_of_few_classes_is_found():
    tasks = {task.values for task in random_tasks(3, 6, seed=0, run=0)}
    assert len(tasks) == 6 == 2**3 - 2


def test_more_tasks_leave_the_first_ones_alone():
    assert random_tasks(10, 20, seed=3, run=1)[:5] == random_tasks(10, 5, seed=3, run=1)


def test_runs_and_seeds_have_other_tasks():
    of = {(s, r): random_tasks(10, 20, seed=s, run=r) for s in (0, 1) for r in (0, 1)}
    values = {key: tuple(task.values for task in tasks) for key, tasks in of.items()}
    assert len(set(values.values())) == 4


@pytest.mark.parametrize("n_tasks", [0, 7])
def test_an_impossible_number_of_tasks_is_refused(n_tasks):
    with pytest.raises(ValueError, match=rf"n_tasks = {n_tasks}.*between 1 and 6"):
        random_tasks(3, n_tasks, seed=0, run=0)


def test_each_digit_gets_each_value_about_half_the_time():
    values = np.array([task.values for task in random_tasks(10, 600, seed=0, run=0)])
    # 600 fair coins a digit: five standard deviations are 0.1.
    assert np.abs(values.mean(axis=0) - 0.5).max() < 0.1


LOPSIDED = Task(0, 0, (1, 0, 0, 0, 0, 0, 0, 0, 0, 0))


def test_rows_are_distinct_and_of_the_right_number():
    y = np.arange(1000) % 10
    draw = draw_rows(y, LOPSIDED, 5, seed=0)
    assert (len(draw.train), len(draw.validation)) == (50, 10)
    assert len(set(draw.rows)) == 60
    assert np.array_equal(draw.rows, np.r_[draw.train, draw.validation])


def test_both_labels_are_always_among_the_training_rows():
    # One row in ten has the label: about a third of all draws at N = 1 must be redrawn.
    y = np.arange(1000) % 10
    for index in range(100):
        task = Task(0, index, LOPSIDED.values)
        labels = task.apply(y)[draw_rows(y, task, 1, seed=0).train]
        assert set(labels) == {0, 1}


def test_rows_follow_from_their_key_alone():
    y = np.arange(1000) % 10
    task, other = random_tasks(10, 2, seed=0, run=0)
    rows = draw_rows(y, task, 5, seed=0).rows
    assert np.array_equal(rows, draw_rows(y, task, 5, seed=0).rows)
    assert not np.array_equal(rows, draw_rows(y, other, 5, seed=0).rows)
    assert not np.array_equal(rows, draw_rows(y, task, 5, seed=1).rows)
    assert not np.isin(rows, draw_rows(y, task, 10, seed=0).rows[:60]).all()
    assert fit_seed(task, seed=0) != fit_seed(other, seed=0)


@pytest.mark.parametrize("n_labels", [0, 84])
def test_more_rows_than_there_are_is_refused(n_labels):
    with pytest.raises(ValueError, match=rf"N = {n_labels} takes.*between 1 and 83"):
        draw_rows(np.arange(1000) % 10, LOPSIDED, n_labels, seed=0)


def test_a_training_set_with_one_label_is_refused_and_not_drawn_for_ever():
    with pytest.raises(ValueError, match="every row has the label 0"):
        draw_rows(np.ones(100, dtype=int), LOPSIDED, 5, seed=0)


def test_run_0_of_seed_0_learns_with_random_state_0():
    assert pretraining_seed(0, seed=0) == 0
    assert len({pretraining_seed(run, seed=0) for run in range(4)}) == 4


def test_the_tasks_of_runs_are_those_of_each_run_whatever_n_is_asked_for():
    y = np.arange(1000) % 10
    tasks = tasks_of_runs(y, (5, 20), n_tasks=3, n_runs=2, seed=7)
    assert tasks == {run: random_tasks(10, 3, seed=7, run=run) for run in range(2)}


def test_later_runs_are_the_same_whichever_is_the_first():
    y = np.arange(1000) % 10
    few = tasks_of_runs(y, (5,), n_tasks=3, n_runs=2, seed=7, first_run=4)
    assert few == {run: random_tasks(10, 3, seed=7, run=run) for run in (4, 5)}
    all_of_them = tasks_of_runs(y, (5,), n_tasks=3, n_runs=6, seed=7)
    assert few.items() <= all_of_them.items()


# Balanced rows


@pytest.mark.parametrize("n_labels", [1, 3, 5, 7, 40])
def test_a_balanced_draw_has_n_rows_of_each_class_and_as_even_a_rest_as_can_be(n_labels):
    y = np.arange(1000) % 10
    for index in range(20):
        task = Task(0, index, LOPSIDED.values)
        draw = draw_rows(y, task, n_labels, seed=0, law="balanced")
        assert np.array_equal(np.bincount(y[draw.train], minlength=10), [n_labels] * 10)
        rest = np.bincount(y[draw.validation], minlength=10)
        assert rest.sum() == len(draw.validation) == 2 * n_labels
        assert rest.max() - rest.min() <= 1
        assert len(set(draw.rows)) == 12 * n_labels
        assert set(task.apply(y)[draw.train]) == {0, 1}


def test_balanced_rows_are_uniform_within_a_class_and_the_odd_ones_among_classes():
    y = np.arange(80) % 10  # eight rows of each class
    n_draws, n_labels = 3000, 2
    train, validation, place = np.zeros(80), np.zeros(80), np.zeros(10)
    for index in range(n_draws):
        draw = draw_rows(y, Task(0, index, LOPSIDED.values), n_labels, seed=1, law="balanced")
        train[draw.train] += 1
        validation[draw.validation] += 1
        place += draw.train[0] % 10 == np.arange(10)
    # A row is chosen with probability 2 / 8 to train with, and with 4 / 80 to validate with; each
    # class is the first one in a tenth of the draws. Five standard deviations.
    for counts, p in ((train, 0.25), (validation, 0.05), (place, 0.1)):
        assert np.abs(counts / n_draws - p).max() < 5 * np.sqrt(p * (1 - p) / n_draws)


def test_balanced_rows_follow_from_their_key_alone_and_are_no_others():
    y = np.arange(1000) % 10
    task, other = random_tasks(10, 2, seed=0, run=0)
    rows = draw_rows(y, task, 5, seed=0, law="balanced").rows
    assert np.array_equal(rows, draw_rows(y, task, 5, seed=0, law="balanced").rows)
    ten_way = draw_rows(y, ten_way_tasks(10, 1, run=0)[0], 5, seed=0)
    for drawn in (
        draw_rows(y, other, 5, seed=0, law="balanced"),
        draw_rows(y, task, 5, seed=1, law="balanced"),
        draw_rows(y, task, 5, seed=0),
        draw_rows(y, task, 5, seed=0, law="uniform"),
        ten_way,
    ):
        assert not np.array_equal(rows[:50], drawn.train)
    uniform = draw_rows(y, task, 5, seed=0, law="uniform").rows
    assert np.array_equal(draw_rows(y, task, 5, seed=0).rows, uniform)


@pytest.mark.parametrize(
    ("y", "n_labels", "law", "message"),
    [
        (np.arange(1000) % 10, 0, "balanced", "N = 0 takes.*N must be 1 or more"),
        (np.arange(1000) % 10, 84, "balanced", "N = 84 takes up to 101 .*rarest one has 100 rows"),
        (np.arange(1000) % 12, 5, "balanced", "N rows of each of 10 classes; the images have 12"),
        (np.arange(1000) % 10, 5, "even", "unknown law 'even'.*valid ones are uniform, balanced"),
    ],
)
def test_a_balanced_draw_that_cannot_be_had_is_refused(y, n_labels, law, message):
    with pytest.raises(ValueError, match=message):
        draw_rows(y, LOPSIDED, n_labels, seed=0, law=law)


def test_83_rows_of_each_class_can_be_drawn_from_100():
    y = np.arange(1000) % 10
    draw = draw_rows(y, LOPSIDED, 83, seed=0, law="balanced")
    assert np.bincount(y[draw.rows]).max() <= 100


# The task with all classes


@pytest.mark.parametrize("n_labels", [1, 7, 100])
def test_a_draw_of_all_classes_has_n_rows_of_each_and_none_to_validate_with(n_labels):
    y = np.arange(1000) % 10
    for task in ten_way_tasks(10, 3, run=0):
        draw = draw_rows(y, task, n_labels, seed=0)
        assert np.array_equal(np.bincount(y[draw.train]), [n_labels] * 10)
        assert len(set(draw.rows)) == len(draw.rows) == 10 * n_labels
        assert len(draw.validation) == 0
        assert np.array_equal(task.apply(y), y)


def test_draws_of_all_classes_differ_and_follow_from_their_key():
    y = np.arange(1000) % 10
    first, second = ten_way_tasks(10, 2, run=0)
    rows = draw_rows(y, first, 5, seed=0).rows
    assert np.array_equal(rows, draw_rows(y, first, 5, seed=0).rows)
    others = [(second, 0), (first, 1), (ten_way_tasks(10, 1, run=4)[0], 0)]
    for task, seed in others:
        assert not np.array_equal(rows, draw_rows(y, task, 5, seed=seed).rows)
    assert ten_way_tasks(10, 5, run=0)[:2] == [first, second]


def test_what_is_drawn_for_a_purpose_does_not_change_by_a_new_one():
    assert PURPOSES == {
        "tasks": 0,
        "rows": 1,
        "fit": 2,
        "passes": 3,
        "yardstick": 4,
        "diagnostics": 5,
        "balanced_rows": 6,
        "self_training": 7,
        "balanced_task_rows": 8,
    }


@pytest.mark.parametrize(
    ("n_labels", "classes", "message"),
    [
        (101, 10, "N = 101 labelled rows of each class: N must be between 1 and 100"),
        (5, 3, "classes = 3: the images have 10, or 2 in binary tasks"),
    ],
)
def test_draws_of_all_classes_that_cannot_be_had_are_refused(n_labels, classes, message):
    y = np.arange(1000) % 10
    with pytest.raises(ValueError, match=message):
        tasks_of_runs(y, (n_labels,), n_tasks=2, n_runs=1, seed=0, classes=classes)


@pytest.mark.parametrize(
    ("n_labels", "n_tasks", "message"),
    [((5, 84), 3, "N = 84 takes"), ((5,), 1023, "n_tasks = 1023")],
)
def test_tasks_of_runs_that_cannot_be_had_are_refused(n_labels, n_tasks, message):
    with pytest.raises(ValueError, match=message):
        tasks_of_runs(np.arange(1000) % 10, n_labels, n_tasks=n_tasks, n_runs=2, seed=0)


# The options, and the data they name


def _parser(**defaults):
    parser = argparse.ArgumentParser()
    add_task_options(parser, **defaults)
    return parser


def test_the_help_names_the_defaults_of_a_plan_only_where_there_is_one():
    with_plan = " ".join(_parser(n_labels=(5, 20), tasks=20, runs=1).format_help().split())
    for text in (
        "labelled images; default: 5 20",
        "tasks a run; default: 20",
        "own tasks; default: 1",
    ):
        assert text in with_plan
        assert text not in " ".join(_parser().format_help().split())


@pytest.mark.parametrize("quiet", [False, True])
def test_what_the_loader_reports_is_said_but_when_quiet(quiet, monkeypatch, capsys):
    def load(data_dir, report):
        report(f"looking into {data_dir}")
        return load_digits_dataset()

    monkeypatch.setitem(bench.DATASETS, "digits", load)
    argv = ["--dataset", "digits", "--data-dir", "folder", *(["--quiet"] if quiet else [])]
    dataset, X, data = load_scaled(_parser().parse_args(argv))
    assert dataset.name == "digits"
    assert len(X) == len(data.y)
    assert capsys.readouterr() == ("", "" if quiet else "looking into folder\n")


# Methods


def test_the_ten_methods_are_the_paper_s():
    assert len(PAPER_METHODS) == 10
    assert set(PAPER_METHODS) == set(ACCURACY) == set(TASK_STD)
    assert {len(row) for row in (ACCURACY | TASK_STD).values()} == {len(N_LABELS)}
    assert all(method.scratch in METHODS for method in METHODS.values())


def test_ours_with_coherence_follows_ours():
    assert NAMES[:3] == ("xavier/fcn/ours", FEATURES_THETA0, FEATURES)
    assert NAMES[3:5] == (FEATURES_CV, "xavier/fcn/scratch")
    assert tuple(name for name in NAMES if name in PAPER_METHODS) == PAPER_METHODS
    assert [name for name in NAMES if name not in PAPER_METHODS] == [
        "xavier/fcn/ours+coherence",
        "features+logistic",
        "features+logistic-cv",
        "xavier/fcn+bn/ours",
        "he/fcn/ours+coherence",
        "he/fcn+bn/ours",
    ]
    initializer = initializer_of(METHODS["he/fcn+bn/ours"], NetworkSettings(), random_state=0)
    assert (initializer.init, initializer.batch_norm) == ("he", True)


def test_names_are_selected_by_pattern_in_the_order_of_the_tables():
    assert select_names(["*/scratch", "xavier/fcn/ours"], METHODS) == [
        "xavier/fcn/ours",
        "xavier/fcn/scratch",
        "xavier/fcn+bn/scratch",
        "he/fcn/scratch",
        "he/fcn+bn/scratch",
    ]


def test_an_unknown_method_is_refused_with_the_valid_ones():
    with pytest.raises(ValueError, match=r"unknown method 'lecun/fcn/ours'.*xavier/fcn/ours"):
        select_names(["lecun/fcn/ours"], METHODS)


@pytest.mark.parametrize("n_labels", [1, 5, 40])
def test_the_validation_rows_are_the_last_two_of_twelve(n_labels):
    ((train, validation),) = LastRowsSplit().split(np.zeros((12 * n_labels, 3)))
    assert np.array_equal(train, np.arange(10 * n_labels))
    assert np.array_equal(validation, np.arange(10 * n_labels, 12 * n_labels))


def test_the_classifier_validates_with_the_validation_rows_of_the_draw():
    # What reaches the classifier inside cross_val_score, in its order, is what the draw says.
    dataset = load_digits_dataset()
    X = np.concatenate(standardize(dataset))
    (task,) = random_tasks(10, 1, seed=0, run=0)
    draw = draw_rows(dataset.y_train, task, 5, seed=0)
    seen = []

    class Spy(LastRowsSplit):
        def split(self, X, y=None, groups=None):
            (pair,) = super().split(X, y, groups)
            seen.append((np.asarray(X)[pair[0]], np.asarray(X)[pair[1]]))
            yield pair

    settings = NetworkSettings((4,), epochs=1, n_perturbations=4)
    contender = network_contender(
        METHODS["xavier/fcn/scratch"], settings, X=X, initializer=None, theta0_digest=None
    )
    pipeline = contender.make(0).set_params(mlpclassifier__validation_split=Spy())
    test = np.arange(len(dataset.y_train), len(X))
    y = task.apply(np.concatenate([dataset.y_train, dataset.y_test]))
    cross_val_score(pipeline, X, y, cv=[(draw.rows, test)])
    ((train, validation),) = seen
    assert np.array_equal(train, X[draw.train])
    assert np.array_equal(validation, X[draw.validation])


def test_the_pipeline_starts_from_the_theta0_it_was_given():
    dataset = load_digits_dataset()
    X, _ = standardize(dataset)
    settings = NetworkSettings((4,), epochs=1, n_perturbations=4)
    method = METHODS["xavier/fcn/ours"]
    fitted = initializer_of(method, settings, random_state=0).fit(X[:64])
    contender = network_contender(method, settings, X=X, initializer=fitted, theta0_digest="x")
    pipeline = clone(contender.make(0)).fit(X[:60], dataset.y_train[:60] > 4)
    (classifier,) = (step for step in pipeline if isinstance(step, MLPClassifier))
    for name, array in fitted.theta0_.arrays.items():
        assert np.array_equal(classifier.theta0_.arrays[name], array)


@pytest.mark.parametrize(("passes", "expected"), [(None, "auto"), (3, 3)])
def test_coherence_takes_its_own_settings(passes, expected):
    settings = NetworkSettings((4,), epochs=7, n_perturbations=9, coherent_epochs=passes, classes=3)
    initializer = initializer_of(METHODS["he/fcn/ours+coherence"], settings, random_state=0)
    own = MMDInitializer(
        (4,), n_classes=3, init="he", coherence="auto", max_iter=expected, random_state=0
    )
    assert initializer.get_params() == own.get_params()


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_augmentation_is_of_the_walks_of_coherence_and_of_nothing_else(network):
    kind = NETWORK_KINDS[network]
    for name in kind.names:
        plain, augmented = (
            kind.initializer(kind.theta0_of(name), NetworkSettings(augmentation=how), 784, 0)
            for how in ("none", "digits")
        )
        if not kind.theta0_of(name).endswith("+coherence"):
            assert repr(plain) == repr(augmented)
            continue
        change = augmented.get_params()["coherence__augmentation"]
        assert change.get_params() == AUGMENTATIONS["digits"].get_params()
        assert plain.coherence == "auto"
        assert augmented.set_params(coherence="auto").get_params().keys() == (
            plain.get_params().keys()
        )


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_neighbours_among_gradients_are_those_of_coherence_alone(network):
    kind = NETWORK_KINDS[network]
    for name in map(kind.theta0_of, kind.names):
        plain, once, twice = (
            kind.initializer(name, NetworkSettings(neighbors=where, rounds=n), 784, 0)
            for where, n in (("pixels", 1), ("gradients", 1), ("gradients", 2))
        )
        if not name.endswith("+coherence"):
            assert repr(plain) == repr(once)
            continue
        assert repr(once.coherence) == "Coherence(embedding=OrientedGradients())"
        assert repr(clone(once).set_params(coherence="auto")) == repr(plain)
        first = twice.coherence.embedding  # and in the second round among activations
        assert repr(first.set_params(output="passthrough")) == repr(once)


@pytest.mark.parametrize("network", NETWORK_KINDS)
def test_the_mean_of_the_kernels_is_a_ninth_of_their_sum_in_the_paper_s_objective_alone(network):
    kind = NETWORK_KINDS[network]
    for name in map(kind.theta0_of, kind.names):
        summed, averaged = (
            kind.initializer(name, NetworkSettings(kernels=kernels), 784, 0)
            for kernels in ("sum", "mean")
        )
        if name.endswith("/ours"):
            assert (summed.uniformity_weight, averaged.uniformity_weight) == (1, 1 / 9)
            averaged.set_params(uniformity_weight=1.0)
        assert repr(summed) == repr(averaged)


def test_separation_is_that_of_coherence_in_every_round():
    name, settings = "xavier/fcn/ours+coherence", NetworkSettings(separation=4.0, rounds=2)
    init = NETWORK_KINDS["mlp"].initializer(name, settings, 784, 0)
    assert init.coherence.separation == init.coherence.embedding.coherence.separation == 4.0


@pytest.mark.parametrize("network", NETWORK_KINDS)
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_each_round_looks_for_neighbours_among_the_activations_of_the_one_before(
    augmentation, network
):
    kind = NETWORK_KINDS[network]
    for name in map(kind.theta0_of, kind.names):
        once, thrice = (
            kind.initializer(name, NetworkSettings(augmentation=augmentation, rounds=n), 784, 0)
            for n in (1, 3)
        )
        if not name.endswith("+coherence"):
            assert repr(once) == repr(thrice)
            continue
        rounds = [thrice]
        while rounds[-1].coherence != "auto" and rounds[-1].coherence.embedding is not None:
            rounds.append(rounds[-1].coherence.embedding)
        assert [r.output for r in rounds] == ["passthrough", "hidden", "hidden"]
        assert repr(rounds[-1].set_params(output="passthrough")) == repr(once)
        for r in rounds[:-1]:
            change, own = AUGMENTATIONS[augmentation], r.coherence.augmentation
            assert (own and own.get_params()) == (change and change.get_params())
            same = clone(r).set_params(coherence=once.coherence, output="passthrough")
            assert repr(same) == repr(once)


# What a score is kept under, as of the results that are committed: a change makes all old logs
# worthless.
SCRATCH_IDENTITY = {
    "network": {
        "init": "xavier",
        "batch_norm": False,
        "pretraining": "scratch",
        "hidden_layer_sizes": (392, 392, 392),
    },
    "fine_tuning": {
        "optimizer": "adam",
        "learning_rate_init": 1e-3,
        "batch_size": 50,
        "max_iter": 10,
    },
    "theta0": None,
}


def test_the_identity_of_a_score_has_not_changed():
    contender = network_contender(
        METHODS["xavier/fcn/scratch"],
        NetworkSettings(),
        X=np.zeros((2, 2)),
        initializer=None,
        theta0_digest=None,
    )
    assert contender.identity == SCRATCH_IDENTITY


def test_with_all_classes_the_last_epoch_is_kept():
    settings = NetworkSettings((4,), classes=10)
    contender = network_contender(
        METHODS["xavier/fcn/scratch"], settings, X=np.zeros((2, 2)), initializer=None,
        theta0_digest=None,
    )  # fmt: skip
    assert contender.make(0)[-1].validation_split is None


def test_features_are_those_of_theta0_and_a_fold_does_not_learn_them_again():
    dataset = load_digits_dataset()
    X, _ = standardize(dataset)
    method = METHODS[FEATURES_THETA0]
    settings = NetworkSettings((6,), coherent_epochs=1)
    fitted = initializer_of(method, settings, random_state=0).fit(X[:64])
    contender = features_contender(X=X, initializer=fitted, theta0_digest="x")
    assert contender.identity["theta0"] == "x"
    assert "LogisticRegression(C=100.0" in contender.identity["pipeline"][-1]
    assert fitted.output == "passthrough"
    searched = features_contender(X=X, initializer=fitted, theta0_digest="x", name=FEATURES_CV)
    assert searched.name == FEATURES_CV
    search = searched.make(0).fit(X[:60], dataset.y_train[:60])[-1]
    assert search.best_params_["C"] in search.param_grid["C"]
    assert search.n_splits_ == 5
    y = dataset.y_train[:60] > 4
    pipeline = clone(contender.make(0)).fit(X[:60], y)
    hidden = np.maximum(X[:60] @ fitted.coefs_[0] + fitted.intercepts_[0], 0.0)
    np.testing.assert_allclose(pipeline[0].transform(X[:60]), hidden, rtol=1e-4, atol=1e-4)
    # The scale of theta0, which fine-tuning depends on, is of no account here.
    assert np.allclose(np.linalg.norm(pipeline[:2].transform(X[:60]), axis=1), 1.0)
