"""Where a classifier starts: every kind of warm_start_from, and every way to be wrong."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from nets import Conv, Pooled, assert_same_arrays, counting, digit_images, fits
from sklearn_mmdinit import MLP, EmbeddingClassifier, MLPClassifier, MMDInitializer, NetClassifier

X, Y = load_iris(return_X_y=True)
DATA, IMAGES = (X - X.mean(axis=0), Y), digit_images(60, 3)


@pytest.fixture(autouse=True)
def _no_fits_yet():
    fits.clear()


@pytest.fixture
def fitted():
    initializer = counting(random_state=0).fit(DATA[0])
    fits.clear()
    return initializer


def of_module(module=Conv, **params):
    own = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    if module is Conv:
        own["module__n_classes"] = 3
    return MMDInitializer(module=module, **{**own, **params})


@pytest.fixture(scope="module")
def of_images():
    return of_module().fit(IMAGES[0])


# Training that leaves a module at its initial weights.
AT_THETA0 = {"max_iter": 0, "fine_tuning": "paper"}


def start_of(warm_start_from, data=DATA, **params):
    """Where a classifier starts, which its weights are after no epoch at all."""
    clf = MLPClassifier(warm_start_from=warm_start_from, **AT_THETA0, random_state=0, **params)
    return checked_start(clf.fit(*data))


def checked_start(clf):
    for name, weight in clf.module_.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), clf.theta0_.arrays[name])
    return clf.theta0_


def as_file(initializer, folder):
    initializer.theta0_.save(folder / "theta0.safetensors")
    return folder / "theta0.safetensors"


AS_IT_IS = {
    "fitted initializer": lambda initializer, folder: initializer,
    "Theta0": lambda initializer, folder: initializer.theta0_,
    "path": as_file,
    "str": lambda initializer, folder: str(as_file(initializer, folder)),
}


@pytest.mark.parametrize("make", AS_IT_IS.values(), ids=AS_IT_IS)
def test_what_is_used_as_it_is(make, fitted, of_images, tmp_path):
    clf = MLPClassifier(warm_start_from=make(fitted, tmp_path), **AT_THETA0, random_state=0)
    for one in (clf, clone(clf)):
        found = checked_start(one.fit(*DATA))
        assert_same_arrays(found, fitted.theta0_)
        assert found.architecture == fitted.theta0_.architecture
    assert fits == [], "nothing is fitted"
    source = make(of_images, tmp_path)
    net = NetClassifier(Conv, warm_start_from=source, **AT_THETA0).fit(*IMAGES)
    assert_same_arrays(checked_start(net), of_images.theta0_)


def test_an_unfitted_initializer_is_fitted_on_a_clone():
    initializer = counting()
    clf = MLPClassifier(warm_start_from=initializer, **AT_THETA0, random_state=0).fit(*DATA)
    assert fits == [len(DATA[0])]
    assert not hasattr(initializer, "theta0_")
    assert clone(clf).warm_start_from is not initializer
    assert clf.theta0_ is clf.initializer_.theta0_
    # The classifier seeds one without a seed.
    assert_same_arrays(start_of(counting()), clf.theta0_)
    seeded = counting(random_state=3)
    assert_same_arrays(start_of(seeded), clone(seeded).fit(DATA[0]).theta0_)


@pytest.mark.parametrize("module", [Conv, None])
def test_an_unfitted_initializer_of_a_module(module, of_images):
    clf = NetClassifier(module, warm_start_from=of_module(), **AT_THETA0, random_state=0)
    assert_same_arrays(checked_start(clf.fit(*IMAGES)), of_images.theta0_)
    assert isinstance(clf.module_, Conv)
    assert clf.module is module


def test_the_built_in_network_is_a_module_like_any_other(fitted):
    """What MLPClassifier does, NetClassifier does with an MLP; module=None is the start's own."""
    expected = MLPClassifier(warm_start_from=fitted, max_iter=3, random_state=0).fit(*DATA)
    own = {"module__n_features": 4, "module__hidden_layer_sizes": (5, 4)}
    for net in (NetClassifier(), NetClassifier(MLP, **own, module__activation="tanh")):
        net.set_params(warm_start_from=fitted, max_iter=3, random_state=0).fit(*DATA)
        assert net.loss_curve_ == expected.loss_curve_
        np.testing.assert_array_equal(net.predict_proba(DATA[0]), expected.predict_proba(DATA[0]))


def test_cross_validation_of_a_fitted_initializer_never_fits_it(fitted):
    clf = make_pipeline(StandardScaler(), MLPClassifier(warm_start_from=fitted, max_iter=1))
    cross_val_score(clf, *DATA, cv=3)
    grid = {"warm_start_from": [None, fitted.theta0_], "random_state": [0]}
    GridSearchCV(MLPClassifier(max_iter=1), grid, cv=2).fit(*DATA)
    # An ensemble sets every random_state among the parameters of its members.
    ensemble = BaggingClassifier(MLPClassifier(warm_start_from=fitted, max_iter=1), n_estimators=2)
    for member in ensemble.fit(*DATA).estimators_:
        assert_same_arrays(member.theta0_, fitted.theta0_)
    assert fits == []


def test_a_fitted_initializer_has_no_parameters_here(fitted):
    clf = MLPClassifier(warm_start_from=fitted, **AT_THETA0)
    assert [name for name in clf.get_params() if "warm_start_from" in name] == ["warm_start_from"]
    clf.set_params(**clf.get_params())
    for one in (clf, MLPClassifier()):
        with pytest.raises(ValueError, match="warm_start_from__batch_size cannot be set"):
            one.set_params(warm_start_from=fitted, warm_start_from__batch_size=64)
    assert fitted.batch_size != 64
    assert hasattr(fitted, "theta0_")


def test_parameters_of_an_unfitted_initializer_can_be_searched():
    clf = MLPClassifier(warm_start_from=counting(), **AT_THETA0, random_state=0)
    assert clf.get_params()["warm_start_from__perturbation_scale"] == np.sqrt(0.5)
    grid = {"warm_start_from__hidden_layer_sizes": [(3,), (4,)]}
    search = GridSearchCV(clf, grid, cv=2, error_score="raise").fit(*DATA)
    assert len(fits) == 2 * 2 + 1
    (chosen,) = search.best_params_.values()
    assert search.best_estimator_.coefs_[0].shape == (4, *chosen)
    assert clf.warm_start_from.hidden_layer_sizes == (5, 4)


MISMATCHES = (
    ({"hidden_layer_sizes": (5, 5)}, r"sizes=\(5, 4\).*the module here is .*sizes=\(5, 5\)"),
    ({"activation": "relu"}, "'tanh'.*'relu'"),
)


@pytest.mark.parametrize("kind", ["fitted", "unfitted", "theta0"])
def test_a_perceptron_of_another_shape(kind, fitted):
    source = {"fitted": fitted, "unfitted": counting(), "theta0": fitted.theta0_}[kind]
    for given, message in MISMATCHES:
        with pytest.raises((ValueError, RuntimeError), match=message):
            start_of(source, **given)
    assert fits == [], "known before the long part"
    agreed = {"hidden_layer_sizes": [5, 4], "activation": "tanh"}
    assert start_of(source, **agreed).architecture.n_classes == 3


def test_a_theta0_for_another_number_of_classes(fitted, tmp_path):
    two = DATA[0], DATA[1] == 0
    for source in (fitted, fitted.theta0_, as_file(fitted, tmp_path), counting()):
        with pytest.raises(ValueError, match=r"for 3 classes.* 2 .*\(n_classes=2\)"):
            start_of(source, two)
    assert fits == [], "known before the long part"
    # By default it is that of y.
    assert start_of(counting(n_classes="auto"), two).architecture.n_classes == 2


def test_other_columns(fitted):
    three = DATA[0][:, :3], DATA[1]
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        start_of(fitted, three)
    with pytest.raises(RuntimeError, match=r"linears.0.weight: .*\[5, 4\]"):
        start_of(fitted.theta0_, three)
    frame = pd.DataFrame(DATA[0], columns=list("abcd"))
    named = counting().fit(frame)
    assert_same_arrays(start_of(named, (frame, DATA[1])), named.theta0_)
    with pytest.raises(ValueError, match="feature names should match"):
        start_of(named, (frame[list("dcba")], DATA[1]))
    module = Pooled(n_classes=3)  # takes any number of columns
    named = of_module(module).fit(frame)
    clf = NetClassifier(module, warm_start_from=named)
    with pytest.raises(ValueError, match="Feature names unseen at fit time"):
        clf.fit(frame.assign(e=1.0), DATA[1])


def test_a_theta0_of_another_module_is_refused_by_name(of_images):
    X, y = IMAGES
    with pytest.raises(ValueError, match="for 3 classes"):
        NetClassifier(warm_start_from=of_images).fit(X, y > 0)
    X = X.reshape(60, -1)
    perceptron = MMDInitializer((4,), n_classes=3, n_perturbations=2, max_iter=1).fit(X)
    for source in (perceptron, clone(perceptron)):
        with pytest.raises(ValueError, match=r"sklearn_mmdinit\.MLP, but .* is nets\.Pooled"):
            NetClassifier(Pooled, warm_start_from=source).fit(X, y)
    for source in (of_module(), of_images, of_images.theta0_):
        with pytest.raises(ValueError, match="MLPClassifier"):
            MLPClassifier(warm_start_from=source).fit(X, y)


def test_what_would_not_fit_is_said_before_it_is_learned():
    for init, words in (
        (of_module(module__width=3), r"size mismatch for conv.weight: .*\[3, "),
        (of_module(nn.Linear(64, 3)), r"Linear, but .* is nets\.Conv"),
    ):
        init.set_params(max_iter=10**9)  # it would never end
        with pytest.raises((ValueError, RuntimeError), match=words) as caught:
            NetClassifier(Conv, warm_start_from=init).fit(*IMAGES)
        assert "is of another module" in caught.value.__notes__[-1]


def test_bad_parameters_are_noticed_before_the_long_part():
    for name, bad in (("optimizer", "adamax"), ("validation_split", 2.0), ("device", "none")):
        with pytest.raises((ValueError, RuntimeError), match=name):
            MLPClassifier(warm_start_from=counting(), **{name: bad}).fit(*DATA)
    assert fits == []


def test_a_module_as_start_is_refused_with_what_trains_its_head_first():
    X, y = np.random.default_rng(0).normal(size=(40, 4)), np.arange(40) % 2
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(TypeError, match="warm_start_from") as error:
        NetClassifier(net, warm_start_from=net).fit(X, y)
    advice = re.search(r"write (NetClassifier\(.*\))", str(error.value)).group(1)
    clf = eval(advice, {"NetClassifier": NetClassifier, "net": net})
    assert clf.fit(X, y).fine_tuning_ == "head-first"


@pytest.mark.parametrize("classes", [[-1, 1], [-1, 0, 1]])
def test_a_class_may_be_minus_1_but_for_embeddings(classes):
    X, y = np.random.default_rng(0).normal(size=(60, 4)), np.repeat(classes, 60 // len(classes))
    clf = MLPClassifier(warm_start_from=counting(n_classes="auto")).fit(X, y)
    assert clf.classes_.tolist() == classes
    with pytest.raises(ValueError, match="-1, None and NaN mark examples without a label"):
        EmbeddingClassifier().fit(X, np.where(y == 0, -1, y))
