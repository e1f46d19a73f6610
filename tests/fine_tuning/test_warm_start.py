"""Where a classifier starts: every kind of warm_start_from, and every way in which it can be wrong.

Of perceptrons with a stand-in that counts its fits, of modules with the MMDInitializer itself.
"""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skorch.callbacks import Callback
from torch import nn

from nets import Conv, Counting, Pooled, assert_same_arrays, digit_images, fits
from sklearn_mmdinit import (
    MLP,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    save_theta0,
)


@pytest.fixture(autouse=True)
def _no_fits_yet():
    fits.clear()


@pytest.fixture(scope="module")
def data():
    X, y = load_iris(return_X_y=True)
    return X - X.mean(axis=0), y


@pytest.fixture
def fitted(data):
    initializer = Counting(random_state=0).fit(data[0])
    fits.clear()
    return initializer


@pytest.fixture(scope="module")
def images():
    return digit_images(60, 3)


def of_module(module=Conv, **params):
    own = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    if module is Conv:
        own["module__n_classes"] = 3
    return MMDInitializer(module=module, **{**own, **params})


@pytest.fixture(scope="module")
def of_images(images):
    return of_module().fit(images[0])


# Training that leaves a module at its initial weights.
AT_THETA0 = {"max_iter": 0, "fine_tuning": "paper"}


def start_of(data, warm_start_from, **params):
    """Where a classifier starts, which its weights are after no epoch at all."""
    clf = MLPClassifier(warm_start_from=warm_start_from, **AT_THETA0, random_state=0, **params)
    return checked_start(clf.fit(*data))


def checked_start(clf):
    for name, weight in clf.module_.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), clf.theta0_.arrays[name])
    return clf.theta0_


def as_file(initializer, folder):
    save_theta0(folder / "theta0.safetensors", initializer)
    return folder / "theta0.safetensors"


# kinds


AS_IT_IS = {
    "fitted initializer": lambda initializer, folder: initializer,
    "frozen": lambda initializer, folder: FrozenEstimator(initializer),
    "Theta0": lambda initializer, folder: initializer.theta0_,
    "path": as_file,
    "str": lambda initializer, folder: str(as_file(initializer, folder)),
}


@pytest.mark.parametrize("make", AS_IT_IS.values(), ids=AS_IT_IS)
def test_what_is_used_as_it_is(make, data, fitted, images, of_images, tmp_path):
    clf = MLPClassifier(warm_start_from=make(fitted, tmp_path), **AT_THETA0, random_state=0)
    for one in (clf, clone(clf)):
        found = checked_start(one.fit(*data))
        assert_same_arrays(found, fitted.theta0_)
        assert found.architecture == fitted.theta0_.architecture
    assert fits == [], "nothing is fitted"
    source = make(of_images, tmp_path)
    net = NetClassifier(Conv, warm_start_from=source, **AT_THETA0).fit(*images)
    assert_same_arrays(checked_start(net), of_images.theta0_)


def test_fresh_weights(data):
    theta0 = start_of(data, None)
    keywords = {"n_features": 4, "hidden_layer_sizes": (392, 392, 392), "n_classes": 3}
    assert theta0.architecture.keywords == keywords | {"activation": "relu"}
    assert_same_arrays(start_of(data, "auto"), theta0)
    assert not np.array_equal(start_of(data, None, init="he").coefs[0], theta0.coefs[0])


def test_an_unfitted_initializer_is_fitted_on_a_clone(data):
    initializer = Counting()
    clf = MLPClassifier(warm_start_from=initializer, **AT_THETA0, random_state=0).fit(*data)
    assert fits == [len(data[0])]
    assert not hasattr(initializer, "theta0_")
    assert clone(clf).warm_start_from is not initializer
    assert clf.theta0_ is clf.initializer_.theta0_
    # The classifier seeds one without a seed.
    assert_same_arrays(start_of(data, Counting()), clf.theta0_)
    seeded = Counting(random_state=3)
    assert_same_arrays(start_of(data, seeded), clone(seeded).fit(data[0]).theta0_)


@pytest.mark.parametrize("module", [Conv, None])
def test_an_unfitted_initializer_of_a_module(module, images, of_images):
    clf = NetClassifier(module, warm_start_from=of_module(), **AT_THETA0, random_state=0)
    assert_same_arrays(checked_start(clf.fit(*images)), of_images.theta0_)
    assert isinstance(clf.module_, Conv)
    assert clf.module is module


def test_the_built_in_network_is_a_module_like_any_other(data, fitted):
    """What MLPClassifier does, NetClassifier does with an MLP; module=None is the start's own."""
    expected = MLPClassifier(warm_start_from=fitted, max_iter=3, random_state=0).fit(*data)
    own = {"module__n_features": 4, "module__hidden_layer_sizes": (5, 4)}
    for net in (NetClassifier(), NetClassifier(MLP, **own, module__activation="tanh")):
        net.set_params(warm_start_from=fitted, max_iter=3, random_state=0).fit(*data)
        assert net.loss_curve_ == expected.loss_curve_
        np.testing.assert_array_equal(net.predict_proba(data[0]), expected.predict_proba(data[0]))


class Seen(Callback):
    """Keeps the rows of each batch."""

    def on_train_begin(self, net, **kwargs):
        self.kept_ = []

    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        self.kept_.append((training, batch[0].flatten(1).sum(1).tolist()))


def test_a_start_changes_neither_split_nor_batches(images, of_images):
    def kept(source, seed):
        own = {"callbacks": [Seen], "random_state": seed, "max_iter": 2, "fine_tuning": "paper"}
        clf = NetClassifier(Conv, warm_start_from=source, **own).fit(*images)
        return dict(clf.net_.callbacks_)["Seen"].kept_

    fresh = kept(None, seed=0)
    assert {training for training, _ in fresh} == {True, False}
    assert kept(of_images, seed=0) == fresh
    assert kept(None, seed=1) != fresh


# clone, set_params, searches


def test_cross_validation_of_a_fitted_initializer_never_fits_it(data, fitted):
    clf = make_pipeline(StandardScaler(), MLPClassifier(warm_start_from=fitted, max_iter=1))
    cross_val_score(clf, *data, cv=3)
    grid = {"warm_start_from": [None, FrozenEstimator(fitted), fitted.theta0_]}
    GridSearchCV(MLPClassifier(max_iter=1), grid, cv=2).fit(*data)
    assert fits == []


@pytest.mark.parametrize("is_fitted", [False, True])
def test_set_params_never_changes_the_callers_initializer(is_fitted, data, fitted):
    initializer = fitted if is_fitted else Counting()
    clf = MLPClassifier(warm_start_from=initializer, **AT_THETA0, random_state=0)
    assert clf.get_params()["warm_start_from__scale"] == 0.1
    clf.set_params(warm_start_from__scale=0.5)
    assert initializer.scale == 0.1
    assert hasattr(initializer, "theta0_") is is_fitted
    clf.fit(*data)
    assert fits == [len(data[0])], "other parameters mean another theta0"
    assert np.abs(clf.theta0_.coefs[0]).max() > 0.5
    clf = MLPClassifier().set_params(warm_start_from=fitted, warm_start_from__scale=0.5)
    assert (clf.warm_start_from.scale, fitted.scale) == (0.5, 0.1)


def test_what_changes_nothing_of_theta0_leaves_it_fitted(data, fitted):
    clf = MLPClassifier(warm_start_from=fitted, **AT_THETA0, random_state=0)
    clf.set_params(**clf.get_params())
    assert clf.warm_start_from is fitted, "these are the values that it has"
    equal = {"scale": float("0.1"), "hidden_layer_sizes": (*fitted.hidden_layer_sizes,)}
    clf.set_params(**{f"warm_start_from__{name}": value for name, value in equal.items()})
    assert clf.warm_start_from is fitted, "equal values are other objects"
    clf.set_params(warm_start_from__random_state=7)
    assert (clf.warm_start_from.random_state, fitted.random_state) == (7, 0)
    assert_same_arrays(clf.fit(*data).theta0_, fitted.theta0_)
    assert fits == []
    # With another change it is learned anew, with this seed.
    clf.set_params(warm_start_from__random_state=8, warm_start_from__scale=0.5)
    assert not hasattr(clf.warm_start_from, "theta0_")
    assert (clf.warm_start_from.random_state, clf.warm_start_from.scale) == (8, 0.5)


# through a Pipeline


@pytest.mark.parametrize("start", ["auto", "pipeline"])
@pytest.mark.parametrize("with_memory", [False, True])
def test_a_pipeline_hands_theta0_on(start, with_memory, data, tmp_path):
    steps = [StandardScaler(), Counting(random_state=0)]
    clf = MLPClassifier(warm_start_from=start, max_iter=0)
    pipeline = make_pipeline(*steps, clf, memory=str(tmp_path) if with_memory else None)
    for _ in range(2):  # the second time from the cache
        clone(pipeline).fit(*data)
        pipeline.fit(*data)
        assert_same_arrays(pipeline[-1].theta0_, pipeline[1].theta0_)
    assert len(fits) == (1 if with_memory else 4)
    assert pipeline.predict(data[0]).shape == data[1].shape


@pytest.mark.parametrize("start", ["auto", "pipeline"])
def test_a_theta0_lost_on_the_way_is_an_error(start, data, fitted):
    X = fitted.transform(data[0])[::2]
    with pytest.raises(ValueError, match="A step that returns a new array between the"):
        MLPClassifier(warm_start_from=start).fit(X, data[1][::2])


def frames(*steps):
    return ColumnTransformer([(str(i), step, [0, 1, 2, 3]) for i, step in enumerate(steps)])


INIT = MMDInitializer((4,), n_classes=3, max_iter=0, n_perturbations=2)
CLASSIFIER = MLPClassifier(max_iter=0)
LOSING = {
    "columns between": (INIT, frames("passthrough"), CLASSIFIER),
    "among columns": (frames(INIT), CLASSIFIER),
    "among columns, among steps": (make_pipeline(frames("drop", INIT)), CLASSIFIER),
    "in a union": (make_union(INIT), CLASSIFIER),
    "among earlier steps": (make_pipeline(INIT, StandardScaler()), CLASSIFIER),
    "frozen": (FrozenEstimator(clone(INIT).fit(np.eye(4))), StandardScaler(), CLASSIFIER),
    "outside": (INIT, make_pipeline(StandardScaler(), CLASSIFIER)),
}


@pytest.mark.parametrize("steps", LOSING.values(), ids=LOSING)
def test_a_theta0_lost_anywhere_in_pipelines_is_an_error(steps, data):
    pipeline = clone(make_pipeline(*steps)).set_output(transform="pandas")
    with pytest.raises(ValueError, match="carries no theta0"):
        pipeline.fit(*data)


def test_an_initializer_in_a_later_step_is_nothing_to_lose(data):
    def weights(clf):
        return np.abs(clf.coefs_[0]).sum(axis=1)

    selected = SelectFromModel(CLASSIFIER, importance_getter=weights)
    pipeline = make_pipeline(selected, INIT, CLASSIFIER).fit(*data)
    assert_same_arrays(pipeline[-1].theta0_, pipeline[1].theta0_)


class Countdown(FunctionTransformer):
    """Has numbers where a Pipeline, a ColumnTransformer and a FeatureUnion have their parts."""

    steps = transformers = transformer_list = 3


def test_only_steps_of_scikit_learn_are_asked_for_their_parts(data):
    assert make_pipeline(Countdown(), CLASSIFIER).fit(*data).predict(data[0]).shape == data[1].shape


@pytest.mark.parametrize("change", [lambda X: X.__imul__(3.0), lambda X: np.asarray(X).fill(3.0)])
def test_no_step_changes_the_rows_of_theta0_in_place(change, data):
    rows = clone(INIT).fit_transform(data[0])
    for X in (rows, copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        with pytest.raises(ValueError, match="read-only"):
            change(X)
    pipeline = make_pipeline(INIT, FunctionTransformer(), CLASSIFIER).fit(*data)
    assert_same_arrays(pipeline[-1].theta0_, pipeline[0].theta0_)


# what does not fit


MISMATCHES = (
    ({"hidden_layer_sizes": (5, 5)}, r"\(5, 4\).*\(5, 5\).*as warm_start_from__hidden"),
    ({"activation": "relu"}, "'tanh'.*'relu'"),
)


@pytest.mark.parametrize("kind", ["fitted", "unfitted", "theta0"])
def test_a_perceptron_of_another_shape(kind, data, fitted):
    source = {"fitted": fitted, "unfitted": Counting(), "theta0": fitted.theta0_}[kind]
    for given, message in MISMATCHES:
        with pytest.raises(ValueError, match=message):
            start_of(data, source, **given)
    if kind == "unfitted":
        with pytest.raises(ValueError, match="n_classes=3, but the classes are 2"):
            start_of((data[0], data[1] == 0), source)
    assert fits == [], "known before the long part"
    agreed = {"hidden_layer_sizes": [5, 4], "activation": "tanh"}
    assert start_of(data, source, **agreed).architecture.n_classes == 3


def test_other_columns(data, fitted):
    with pytest.raises(ValueError, match="n_features=4, but X has 3"):
        start_of((data[0][:, :3], data[1]), fitted)
    frame = pd.DataFrame(data[0], columns=list("abcd"))
    named = Counting().fit(frame)
    assert_same_arrays(start_of((frame, data[1]), named), named.theta0_)
    assert_same_arrays(start_of(data, named), named.theta0_)
    with pytest.raises(ValueError, match="with 'a' as column 0, and X has 'd' there"):
        start_of((frame[list("dcba")], data[1]), named)
    module = Pooled(n_classes=3)  # takes any number of columns
    named = of_module(module).fit(frame)
    clf = NetClassifier(module, warm_start_from=named)
    for columns, n in ((frame.assign(e=1.0), 5), (frame[list("abc")], 3)):
        with pytest.raises(ValueError, match=f"fitted with 4 columns, and X has {n}"):
            clf.fit(columns, data[1])


def test_a_theta0_of_another_module_is_refused_by_name(images, of_images):
    X, y = images
    with pytest.raises(ValueError, match="3 logits"):
        NetClassifier(warm_start_from=of_images).fit(X, y > 0)
    X = X.reshape(60, -1)
    perceptron = MMDInitializer((4,), n_classes=3, n_perturbations=2, max_iter=1).fit(X)
    for source in (perceptron, clone(perceptron)):
        with pytest.raises(ValueError, match=r"sklearn_mmdinit\.MLP, but .* is nets\.Pooled"):
            NetClassifier(Pooled, warm_start_from=source).fit(X, y)
    for source in (of_module(), of_images, of_images.theta0_):
        with pytest.raises(ValueError, match="MLPClassifier"):
            MLPClassifier(warm_start_from=source).fit(X, y)


@pytest.mark.parametrize(
    ("init", "words"),
    [
        (of_module(module__width=3), r"'conv.weight' has shape \(3,"),
        (of_module(module__n_classes=2), "'head.weight'"),
        (of_module(nn.Linear(64, 3)), r"Linear, but .* is nets\.Conv"),
    ],
)
def test_what_would_not_fit_is_said_before_it_is_learned(init, words, images):
    init.set_params(max_iter=10**9)  # it would never end
    with pytest.raises(ValueError, match=f"MMDInitializer would learn .*{words}"):
        NetClassifier(Conv, warm_start_from=init).fit(*images)


# a theta0 of another number of classes


def test_a_theta0_of_other_classes_gets_a_fresh_last_layer(data):
    X = data[0]
    init = MMDInitializer((6,), coherence="auto", max_iter=1, random_state=0).fit(X)
    with pytest.warns(UserWarning, match=r"for 2 classes and y has 3: .* last layer, 'linears.1'"):
        found = start_of(data, init)
    np.testing.assert_array_equal(found.arrays["linears.0.weight"], init.coefs_[0].T)
    assert found.gain == init.gain_ != (1.0,)
    fresh = start_of(data, None, hidden_layer_sizes=(6,)).arrays["linears.1.weight"]
    np.testing.assert_allclose(found.arrays["linears.1.weight"] * init.gain_[0], fresh, rtol=1e-5)


# what cannot be a start


def test_bad_parameters_are_noticed_before_the_long_part(data):
    for name, bad in (("optimizer", "adamax"), ("validation_split", 2.0), ("callbacks", [3])):
        with pytest.raises((ValueError, AttributeError)):
            MLPClassifier(warm_start_from=Counting(), **{name: bad}).fit(*data)
    assert fits == []
