"""Every kind of warm_start_from, and every way in which it can be wrong."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import Architecture, Coherence, MLPClassifier, MMDInitializer, Theta0
from sklearn_mmdinit._fine_tuning import WantedPerceptron
from sklearn_mmdinit._fine_tuning.perceptron import theta0_from_arrays
from sklearn_mmdinit._fine_tuning.warm_start import resolve
from sklearn_mmdinit._network import save_theta0, tag

fits_seen = []  # one entry a fit of the stand-in below: the number of rows it saw


class CountingInitializer(BaseEstimator):
    """A stand-in that counts its fits; its weights tell which parameters it was fitted with."""

    def __init__(
        self,
        hidden_layer_sizes=(5, 4),
        *,
        n_classes=3,
        activation="tanh",
        batch_norm=False,
        scale=0.1,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.activation = activation
        self.batch_norm = batch_norm
        self.scale = scale
        self.random_state = random_state

    def fit(self, X, y=None):
        fits_seen.append(len(X))
        architecture = Architecture(
            np.shape(X)[1],
            tuple(self.hidden_layer_sizes),
            self.n_classes,
            self.activation,
            self.batch_norm,
        )
        rng = np.random.default_rng(self.random_state)
        arrays = {
            name: (self.scale * rng.normal(size=shape)).astype(np.float32)
            for name, shape in architecture.array_shapes().items()
        }
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.theta0_ = Theta0(architecture, arrays)
        return self

    def transform(self, X):
        return tag(X, self.theta0_)


@pytest.fixture(autouse=True)
def _no_fits_yet():
    fits_seen.clear()


@pytest.fixture
def data():
    X, y = load_iris(return_X_y=True)
    return X - X.mean(axis=0), y


@pytest.fixture
def fitted(data):
    initializer = CountingInitializer(random_state=0).fit(data[0])
    fits_seen.clear()
    return initializer


def start_of(data, warm_start_from, **params):
    """Where a classifier starts, read from its weights after no epoch at all."""
    clf = MLPClassifier(warm_start_from=warm_start_from, max_iter=0, random_state=0, **params)
    clf.fit(*data)
    for name, weight in clf.module_.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), clf.theta0_.arrays[name])
    return clf.theta0_


def assert_same(found, expected):
    assert found.architecture == expected.architecture
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def assert_differ(a, b):
    assert not np.array_equal(a.arrays["linears.0.weight"], b.arrays["linears.0.weight"])


def as_file(initializer, folder):
    path = folder / "theta0.safetensors"
    save_theta0(path, initializer)
    return path


AS_IT_IS = {
    "fitted initializer": lambda initializer, folder: initializer,
    "frozen": lambda initializer, folder: FrozenEstimator(initializer),
    "Theta0": lambda initializer, folder: initializer.theta0_,
    "dict": lambda initializer, folder: initializer.theta0_.arrays,
    "path": as_file,
    "str": lambda initializer, folder: str(as_file(initializer, folder)),
}


@pytest.mark.parametrize("cloned", [False, True])
@pytest.mark.parametrize("make", AS_IT_IS.values(), ids=AS_IT_IS)
def test_what_is_used_as_it_is(make, cloned, data, fitted, tmp_path):
    # A dict does not say its activation.
    clf = MLPClassifier(
        warm_start_from=make(fitted, tmp_path), activation="tanh", max_iter=0, random_state=0
    )
    clf = (clone(clf) if cloned else clf).fit(*data)
    assert_same(clf.theta0_, fitted.theta0_)
    assert clf.module_.architecture == fitted.theta0_.architecture
    assert fits_seen == [], "nothing is fitted"


def test_training_moves_the_weights_and_not_theta0(data, fitted):
    before = {name: array.copy() for name, array in fitted.theta0_.arrays.items()}
    clf = MLPClassifier(warm_start_from=fitted, max_iter=3, random_state=0).fit(*data)
    assert not np.array_equal(clf.coefs_[0], clf.theta0_.coefs[0])
    for name, array in before.items():
        np.testing.assert_array_equal(fitted.theta0_.arrays[name], array)


def test_fresh_weights(data):
    theta0 = start_of(data, None)
    assert theta0.architecture == Architecture(4, (392, 392, 392), 3, "relu", False)
    assert_same(start_of(data, "auto"), theta0)
    assert_differ(start_of(data, None, init="he"), theta0)


def test_an_unfitted_initializer_is_fitted_on_a_clone(data):
    initializer = CountingInitializer()
    clf = MLPClassifier(warm_start_from=initializer, max_iter=0, random_state=0).fit(*data)
    assert fits_seen == [len(data[0])]
    assert not hasattr(initializer, "theta0_")
    assert clf.initializer_ is not initializer
    assert clf.theta0_ is clf.initializer_.theta0_


def test_the_classifier_seeds_an_initializer_without_a_seed(data):
    assert_same(start_of(data, CountingInitializer()), start_of(data, CountingInitializer()))
    seeded = CountingInitializer(random_state=3)
    assert_same(start_of(data, seeded), clone(seeded).fit(data[0]).theta0_)


# refit_initializer


def test_refit_true_learns_anew_and_leaves_the_fitted_one_alone(data, fitted):
    theta0 = fitted.theta0_
    clf = MLPClassifier(
        warm_start_from=fitted.set_params(random_state=7), refit_initializer=True, max_iter=0
    ).fit(*data)
    assert fits_seen == [len(data[0])]
    assert_differ(clf.theta0_, theta0)
    assert fitted.theta0_ is theta0


def test_refit_false_needs_a_fitted_one(data, fitted):
    assert_same(start_of(data, fitted, refit_initializer=False), fitted.theta0_)
    with pytest.raises(NotFittedError, match=r"refit_initializer=False.*Call its fit first"):
        start_of(data, CountingInitializer(), refit_initializer=False)
    with pytest.raises(NotFittedError, match="frozen"):
        start_of(data, FrozenEstimator(CountingInitializer()))


def test_refit_true_needs_something_to_refit(data, fitted):
    with pytest.raises(ValueError, match="cannot refit a FrozenEstimator"):
        start_of(data, FrozenEstimator(fitted), refit_initializer=True)
    with pytest.raises(ValueError, match="needs an initializer in warm_start_from, got Theta0"):
        start_of(data, fitted.theta0_, refit_initializer=True)


# clone, set_params, searches


def test_cross_validation_of_a_fitted_initializer_never_fits_it(data, fitted):
    clf = make_pipeline(StandardScaler(), MLPClassifier(warm_start_from=fitted, max_iter=1))
    cross_val_score(clf, *data, cv=3)
    GridSearchCV(clf, {"mlpclassifier__learning_rate_init": [1e-2, 1e-3]}, cv=2).fit(*data)
    assert fits_seen == []


def test_cross_validation_of_an_unfitted_initializer_fits_it_on_each_fold(data):
    clf = MLPClassifier(warm_start_from=CountingInitializer(), max_iter=1)
    cross_val_score(clf, *data, cv=3)
    assert fits_seen == [100, 100, 100]


def test_clone_keeps_the_fitted_object_itself(fitted):
    clf = MLPClassifier(warm_start_from=fitted)
    assert clone(clone(clf)).warm_start_from is fitted
    assert clone(Pipeline([("clf", clf)])).named_steps["clf"].warm_start_from is fitted


def test_clone_of_an_unfitted_or_refitted_one_is_a_plain_clone(fitted):
    for clf in (
        MLPClassifier(warm_start_from=CountingInitializer()),
        MLPClassifier(warm_start_from=fitted, refit_initializer=True),
    ):
        cloned = clone(clf).warm_start_from
        assert cloned is not clf.warm_start_from
        assert not hasattr(cloned, "theta0_")


@pytest.mark.parametrize("is_fitted", [False, True])
def test_set_params_never_changes_the_callers_initializer(is_fitted, data, fitted):
    initializer = fitted if is_fitted else CountingInitializer()
    clf = MLPClassifier(warm_start_from=initializer, max_iter=0, random_state=0)
    assert clf.get_params()["warm_start_from__scale"] == 0.1
    clf.set_params(warm_start_from__scale=0.5)
    assert initializer.scale == 0.1
    assert hasattr(initializer, "theta0_") is is_fitted
    assert clf.warm_start_from.scale == 0.5
    clf.fit(*data)
    assert fits_seen == [len(data[0])], "other parameters mean another theta0"
    assert np.abs(clf.theta0_.coefs[0]).max() > 0.5


def test_set_params_of_initializer_and_its_parameter_at_once(fitted):
    clf = MLPClassifier(warm_start_from=None)
    clf.set_params(warm_start_from=fitted, warm_start_from__scale=0.5)
    assert (clf.warm_start_from.scale, fitted.scale) == (0.5, 0.1)


def test_what_changes_nothing_of_theta0_leaves_it_fitted(data, fitted):
    clf = MLPClassifier(warm_start_from=fitted, max_iter=0, random_state=0)
    clf.set_params(**clf.get_params())
    clf.set_params(warm_start_from__scale=0.1, warm_start_from__hidden_layer_sizes=(5, 4))
    assert clf.warm_start_from is fitted, "these are the values that it has"
    clf.set_params(warm_start_from__random_state=7)
    assert (clf.warm_start_from.random_state, fitted.random_state) == (7, 0)
    clf.fit(*data)
    assert fits_seen == []
    assert np.array_equal(clf.theta0_.coefs[0], fitted.theta0_.coefs[0])
    # With another change it is learned anew, with this seed.
    clf.set_params(warm_start_from__random_state=8, warm_start_from__scale=0.5)
    assert not hasattr(clf.warm_start_from, "theta0_")
    assert (clf.warm_start_from.random_state, clf.warm_start_from.scale) == (8, 0.5)


def test_an_ensemble_that_seeds_its_members_starts_all_of_them_from_theta0(data, fitted):
    clf = MLPClassifier(warm_start_from=fitted, max_iter=1)
    members = BaggingClassifier(clf, n_estimators=3, random_state=0).fit(*data).estimators_
    assert fits_seen == []
    for member in members:
        assert np.array_equal(member.theta0_.coefs[0], fitted.theta0_.coefs[0])
    assert len({member.random_state for member in members}) == 3
    some = BaggingClassifier(clf, n_estimators=1, max_features=0.5, random_state=0)
    with pytest.raises(ValueError, match="features"):
        some.fit(*data)


def test_seeds_of_its_parts_are_not_set_on_the_callers(data):
    coherence = Coherence(n_neighbors=5, batch_size=20, embedding=PCA(3, random_state=1))
    init = MMDInitializer(
        (4,), n_classes=3, coherence=coherence, n_perturbations=4, max_iter=1, random_state=0
    ).fit(data[0])
    clf = MLPClassifier(warm_start_from=init, max_iter=1)
    clf.set_params(warm_start_from__coherence__embedding__random_state=5)
    assert clf.warm_start_from.theta0_ is init.theta0_
    assert clf.warm_start_from.coherence.embedding.random_state == 5
    assert init.coherence is coherence
    assert coherence.embedding.random_state == 1


def test_set_params_of_a_frozen_one_leaves_it_alone(fitted):
    frozen = FrozenEstimator(fitted)
    clf = MLPClassifier(warm_start_from=frozen)
    with pytest.raises(ValueError, match="frozen"):
        clf.set_params(warm_start_from__scale=0.5)
    clf.set_params(warm_start_from__estimator=CountingInitializer())
    assert frozen.estimator is fitted


def test_set_params_of_what_is_no_initializer():
    with pytest.raises(ValueError, match=r"'warm_start_from__scale' cannot be set.*'auto'"):
        MLPClassifier().set_params(warm_start_from__scale=1)
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        MLPClassifier(warm_start_from=CountingInitializer()).set_params(warm_start_from__nonsense=1)


def test_a_fitted_one_in_a_grid_is_not_learned_again_when_frozen(data, fitted):
    grid = {"warm_start_from": [None, FrozenEstimator(fitted), fitted.theta0_]}
    GridSearchCV(MLPClassifier(max_iter=1), grid, cv=2).fit(*data)
    assert fits_seen == []


def test_memory_learns_once_for_candidates_that_share_theta0(data, tmp_path):
    clf = MLPClassifier(
        warm_start_from=CountingInitializer(), memory=str(tmp_path), max_iter=1, random_state=0
    )
    grid = {"learning_rate_init": [1e-2, 1e-3, 1e-4]}
    search = GridSearchCV(clf, grid, cv=2, refit=False).fit(*data)
    assert len(search.cv_results_["params"]) == 3
    assert fits_seen == [75, 75], "once a fold"
    GridSearchCV(clf, {"warm_start_from__scale": [0.1, 0.2]}, cv=2, refit=False).fit(*data)
    assert fits_seen == [75, 75, 75, 75], "the known scale is remembered, the new one learned"


def test_memory_says_what_it_cannot_know_again(data, tmp_path):
    noise = Coherence(n_neighbors=5, batch_size=20, augmentation=lambda rows, rng: rows)
    init = MMDInitializer((4,), n_classes=3, coherence=noise, n_perturbations=4, max_iter=1)
    clf = MLPClassifier(warm_start_from=init, max_iter=1)
    with pytest.raises(ValueError, match="cannot be pickled: coherence__augmentation;"):
        clone(clf).set_params(memory=str(tmp_path)).fit(*data)
    assert clf.fit(*data).n_iter_ == 1


# the tag


@pytest.mark.parametrize("warm_start_from", ["auto", "pipeline"])
@pytest.mark.parametrize("with_memory", [False, True])
def test_pipeline_hands_theta0_on(warm_start_from, with_memory, data, tmp_path):
    pipeline = Pipeline(
        [
            ("scale", StandardScaler()),
            ("init", CountingInitializer(random_state=0)),
            ("clf", MLPClassifier(warm_start_from=warm_start_from, max_iter=0)),
        ],
        memory=str(tmp_path) if with_memory else None,
    )
    for _ in range(2):  # the second time from the cache
        clone(pipeline).fit(*data)
        pipeline.fit(*data)
        assert_same(pipeline["clf"].theta0_, pipeline["init"].theta0_)
    assert len(fits_seen) == (1 if with_memory else 4)
    assert pipeline.predict(data[0]).shape == data[1].shape


def test_none_ignores_the_tag(data, fitted):
    clf = MLPClassifier((5, 4), activation="tanh", warm_start_from=None, max_iter=0)
    clf.fit(fitted.transform(data[0]), data[1])
    assert_differ(clf.theta0_, fitted.theta0_)


@pytest.mark.parametrize("warm_start_from", ["auto", "pipeline"])
def test_a_tag_lost_to_slicing_is_an_error(warm_start_from, data, fitted):
    X = fitted.transform(data[0])[::2]
    with pytest.raises(ValueError, match="Any step between the initializer and the classifier"):
        MLPClassifier(warm_start_from=warm_start_from).fit(X, data[1][::2])


def test_a_step_between_is_an_error_where_the_tag_is_demanded(data):
    pipeline = make_pipeline(
        CountingInitializer(), StandardScaler(), MLPClassifier(warm_start_from="pipeline")
    )
    with pytest.raises(ValueError, match=r"X \(ndarray\) carries no theta0.*set_output"):
        pipeline.fit(*data)


# mismatches


MISMATCHES = {
    "hidden_layer_sizes": ({"hidden_layer_sizes": (5, 5)}, r"\(5, 4\).*given.*\(5, 5\)"),
    "activation": ({"activation": "relu"}, "'tanh'.*given.*'relu'"),
    "batch_norm": ({"batch_norm": True}, "False.*given.*True"),
}


@pytest.mark.parametrize("kind", ["fitted", "unfitted", "theta0"])
@pytest.mark.parametrize(("given", "message"), MISMATCHES.values(), ids=MISMATCHES)
def test_given_architecture_of_another_shape(given, message, kind, data, fitted):
    source = {
        "fitted": fitted,
        "unfitted": CountingInitializer(),
        "theta0": fitted.theta0_,
    }[kind]
    with pytest.raises(ValueError, match=message):
        start_of(data, source, **given)
    assert fits_seen == [], "known before the long part"


def test_given_architecture_that_agrees(data, fitted):
    given = {"hidden_layer_sizes": [5, 4], "activation": "tanh", "batch_norm": False}
    assert_same(start_of(data, fitted, **given), fitted.theta0_)


@pytest.mark.parametrize("is_fitted", [False, True])
def test_class_counts_that_differ(is_fitted, data, fitted):
    X, y = data
    with pytest.raises(ValueError, match="n_classes=3, but y has n_classes=2"):
        start_of((X, y == 0), fitted if is_fitted else CountingInitializer())
    assert fits_seen == []


def test_feature_counts_that_differ(data, fitted):
    with pytest.raises(ValueError, match="n_features=4, but X has n_features=3"):
        start_of((data[0][:, :3], data[1]), fitted)


def test_columns_in_another_order(data, fitted):
    fitted.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    same = WantedPerceptron(n_features=4, n_classes=3, feature_names=("a", "b", "c", "d"))
    unnamed = WantedPerceptron(n_features=4, n_classes=3)
    for wanted in (same, unnamed):
        assert resolve(fitted, *data, wanted).theta0 is fitted.theta0_
    turned = WantedPerceptron(n_features=4, n_classes=3, feature_names=("d", "c", "b", "a"))
    with pytest.raises(ValueError, match=r"\['a', 'b', 'c', 'd'\], but X has \['d'"):
        resolve(fitted, *data, turned)


# other bad values


@pytest.mark.parametrize("bad", [3.5, LogisticRegression(), [1, 2], object()])
def test_kinds_that_are_not_valid(bad, data):
    with pytest.raises(TypeError, match=r"warm_start_from must be None, 'auto', 'pipeline'"):
        start_of(data, bad)


def test_the_class_in_place_of_an_instance(data):
    with pytest.raises(TypeError, match="pass an instance, not the class"):
        start_of(data, CountingInitializer)


def test_an_unknown_word_is_no_path(data):
    with pytest.raises(ValueError, match=r"'pipeline'.*got 'pipelin'"):
        start_of(data, "pipelin")


def test_missing_and_damaged_file(data, tmp_path):
    path = tmp_path / "theta0.safetensors"
    with pytest.raises(FileNotFoundError, match="no file of theta0"):
        start_of(data, str(path))
    path.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        start_of(data, path)


def test_arrays_may_come_from_a_module(data, fitted):
    clf = MLPClassifier((6,), batch_norm=True, max_iter=2, random_state=0).fit(*data)
    state = clf.module_.state_dict()  # tensors, and the counters of batch norm
    theta0 = theta0_from_arrays(state)
    assert theta0.architecture == Architecture(4, (6,), 3, "relu", True)
    np.testing.assert_array_equal(theta0.coefs[0], clf.coefs_[0])


def test_arrays_that_do_not_fit_each_other(data, fitted):
    arrays = dict(fitted.theta0_.arrays)
    with pytest.raises(ValueError, match=r"without 'linears\.0\.weight'"):
        start_of(data, {"coefs": np.zeros((2, 2))})
    with pytest.raises(ValueError, match=r"missing: \['linears.1.bias'\]"):
        start_of(data, {k: v for k, v in arrays.items() if k != "linears.1.bias"})
    with pytest.raises(ValueError, match=r"shape \(4, 9\), expected \(4, 5\)"):
        start_of(data, {**arrays, "linears.1.weight": np.zeros((4, 9))})
    with pytest.raises(ValueError, match=r"expected \(n_out, n_in\)"):
        start_of(data, {**arrays, "linears.1.weight": np.zeros(4)})
    with pytest.raises(ValueError, match="NaN or infinity"):
        start_of(data, {**arrays, "linears.1.bias": np.full(4, np.inf)})


@pytest.mark.parametrize(
    "bad",
    [
        {"optimizer": "adamax"},
        {"device": "abacus"},
        {"skorch_params": {"lr": 1}},
        {"validation_split": 2.0},
        {"init": "zeros"},
    ],
    ids=str,
)
def test_bad_parameters_are_noticed_before_the_long_part(bad, data):
    with pytest.raises(ValueError, match=next(iter(bad))):
        MLPClassifier(warm_start_from=CountingInitializer(), **bad).fit(*data)
    assert fits_seen == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_dict_of_parameters_may_require_gradients_and_have_any_precision(dtype):
    X, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20) % 2
    start = MLPClassifier((3,), max_iter=0, random_state=0).fit(X, y)
    module = start.module_.to(dtype)
    clf = MLPClassifier(warm_start_from=dict(module.named_parameters()), max_iter=0).fit(X, y)
    for own, theirs in zip(clf.coefs_, start.module_.float().linear_layers, strict=True):
        np.testing.assert_array_equal(own, theirs.weight.detach().numpy().T)
