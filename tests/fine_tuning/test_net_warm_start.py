"""Where NetClassifier starts: every kind of warm_start_from, and what cannot be a start."""

import copy
import pickle
import sys
import types
from functools import partial

import joblib
import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from skorch.callbacks import Callback
from torch import nn

from module_zoo import Twice, Words, digit_images, seeded, tokens
from protocol.networks import ConvNet, ResidualNet
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    NetClassifier,
    RandomLabelInitializer,
    save_theta0,
)
from sklearn_mmdinit._fine_tuning.memory import _known_by
from sklearn_mmdinit._network import theta0_of


@pytest.fixture(scope="module")
def data():
    X, y = digit_images(90)
    return X, y % 3


def initializer(module=ConvNet, **params):
    own = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    if module is ConvNet:
        own |= {"module__width": 2, "module__n_classes": 3}
    return MMDInitializer(module=module, **{**own, **params})


@pytest.fixture(scope="module")
def fitted(data):
    return initializer().fit(data[0])


def small(module=ConvNet, **params):
    own = {"max_iter": 1, "random_state": 0}
    if module is ConvNet:
        own["module__width"] = 2
    return NetClassifier(module, **{**own, **params})


@pytest.fixture
def fits_seen(monkeypatch):
    """Shapes of the rows that initializers have learned from."""
    shapes = []
    fit = MMDInitializer.fit

    def counted(self, X, y=None):
        shapes.append(np.shape(X))
        return fit(self, X, y)

    monkeypatch.setattr(MMDInitializer, "fit", counted)
    return shapes


def assert_starts_at(clf, theta0):
    assert clf.theta0_.arrays.keys() == theta0.arrays.keys()
    for name, array in theta0.arrays.items():
        np.testing.assert_array_equal(clf.theta0_.arrays[name], array, err_msg=name)


# kinds


KINDS = {
    "fitted": lambda init, path: init,
    "frozen": lambda init, path: FrozenEstimator(init),
    "theta0": lambda init, path: init.theta0_,
    "arrays": lambda init, path: init.theta0_.arrays,
    "state_dict": lambda init, path: init.to_module().double().state_dict(),
    "path": lambda init, path: path,
    "string": lambda init, path: str(path),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_a_start(kind, data, fitted, tmp_path):
    save_theta0(tmp_path / "theta0.safetensors", fitted)
    source = KINDS[kind](fitted, tmp_path / "theta0.safetensors")
    clf = small(warm_start_from=source, max_iter=0).fit(*data)
    assert_starts_at(clf, fitted.theta0_)
    for name, value in clf.module_.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), fitted.theta0_.arrays[name])
    stream = small(warm_start_from=source).partial_fit(*data, classes=[0, 1, 2])
    assert_starts_at(stream, fitted.theta0_)


def test_an_unfitted_initializer_learns_from_x(data, fitted, fits_seen):
    clf = small(warm_start_from=initializer()).fit(*data)
    assert fits_seen == [(90, 1, 8, 8)]
    assert_starts_at(clf, fitted.theta0_)
    assert clf.initializer_.theta0_ is clf.theta0_
    again = small(warm_start_from=fitted, refit_initializer=True).fit(*data)
    assert len(fits_seen) == 2
    assert_starts_at(again, fitted.theta0_)


def test_further_rows_and_rows_without_a_label(data, fits_seen):
    X, y = data
    few = np.where(np.arange(90) % 3, -1, y)
    clf = small(warm_start_from=initializer(), unlabelled_label=-1)
    clf.fit(X[:60], few[:60], X_unlabelled=(X[60:80], X[80:]))
    assert fits_seen == [(90, 1, 8, 8)]
    with pytest.raises(ValueError, match=r"examples of shape \(1, 16, 4\)"):
        clf.fit(X, y, X_unlabelled=X.reshape(-1, 1, 16, 4))


def test_tokens_are_learned_from(fits_seen):
    X = tokens(40)
    clf = small(Words, warm_start_from=initializer(Words)).fit(X, X[:, 0] % 3)
    assert_starts_at(clf, initializer(Words).fit(X).theta0_)


@pytest.mark.parametrize("frozen", [False, True])
def test_the_module_of_an_initializer_need_not_be_repeated(frozen, data, fitted):
    source = FrozenEstimator(fitted) if frozen else fitted
    clf = NetClassifier(warm_start_from=source, max_iter=0, random_state=0).fit(*data)
    assert_starts_at(clf, fitted.theta0_)
    assert isinstance(clf.module_, ConvNet)
    assert clf.module is None
    unfitted = NetClassifier(warm_start_from=initializer(), max_iter=0, random_state=0).fit(*data)
    assert_starts_at(unfitted, fitted.theta0_)
    with pytest.raises(ValueError, match=r"y has 2 classes, but .*ConvNet returns 3 logits"):
        clf.fit(data[0], data[1] > 0)


class Seen(Callback):
    """Keeps the rows of each batch."""

    def __init__(self, kept):
        self.kept = kept

    def __deepcopy__(self, memo):
        return self  # nets take copies

    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        self.kept.append((training, batch[0].sum((1, 2, 3)).tolist()))


def test_a_start_changes_neither_split_nor_batches(data, fitted):
    kept = {name: [] for name in ("fresh", "warm", "other seed")}
    for name, source, seed in (("fresh", None, 0), ("warm", fitted, 0), ("other seed", None, 1)):
        own = {"callbacks": [Seen(kept[name])], "random_state": seed, "max_iter": 2}
        small(warm_start_from=source, **own).fit(*data)
    assert {training for training, _ in kept["fresh"]} == {True, False}
    assert kept["warm"] == kept["fresh"]
    assert kept["other seed"] != kept["fresh"]


# through a Pipeline and a search


@pytest.mark.parametrize("start", ["auto", "pipeline"])
def test_theta0_goes_down_a_pipeline(start, data, fitted):
    X, y = data
    shift = FunctionTransformer(lambda X: X * 1.0)
    pipe = make_pipeline(shift, initializer(), small(warm_start_from=start)).fit(X, y)
    assert_starts_at(pipe[-1], fitted.theta0_)
    assert theta0_of(pipe[:-1].transform(X)) is pipe[1].theta0_
    assert pipe[:-1].transform(X).shape == X.shape
    assert pipe.predict(X).shape == (90,)


def test_a_start_that_is_lost_on_the_way(data):
    doubled = FunctionTransformer(lambda X: X * 2)
    pipe = make_pipeline(initializer(), doubled, small())
    with pytest.raises(ValueError, match="theta0 that it carried was lost"):
        pipe.fit(*data)
    with pytest.raises(ValueError, match="carries no theta0"):
        small(warm_start_from="pipeline").fit(*data)


def test_cross_validation_and_further_rows_in_a_pipeline(data, fits_seen):
    X, y = data
    with sklearn.config_context(enable_metadata_routing=True):
        clf = small(warm_start_from=initializer()).set_fit_request(X_unlabelled=True)
        half = FunctionTransformer(lambda X: X / 2)
        pipe = Pipeline([("half", half), ("clf", clf)], transform_input=["X_unlabelled"])
        found = cross_validate(pipe, X, y, cv=3, params={"X_unlabelled": (X[:20],)})
    assert fits_seen == [(80, 1, 8, 8)] * 3
    assert np.isfinite(found["test_score"]).all()


def test_a_fitted_initializer_stays_fitted_in_a_cross_validation(data, fitted, fits_seen):
    clf = NetClassifier(warm_start_from=fitted, max_iter=1, random_state=0)
    assert clone(clf).warm_start_from is fitted
    found = cross_validate(clf, *data, cv=2, return_estimator=True, error_score="raise")
    for one in found["estimator"]:
        assert_starts_at(one, fitted.theta0_)
    assert fits_seen == []


def test_parameters_of_the_class_are_searched(data, fits_seen):
    search = GridSearchCV(small(), {"module__width": [2, 3]}, cv=2, error_score="raise")
    search.fit(*data)
    best = search.best_estimator_
    assert best.module_.conv1.out_channels == best.module__width
    clf = NetClassifier(warm_start_from=initializer(), max_iter=1, random_state=0)
    grid = {"warm_start_from__module__width": [2, 3]}
    best = GridSearchCV(clf, grid, cv=2, error_score="raise").fit(*data).best_estimator_
    assert best.module_.conv1.out_channels == best.warm_start_from.module__width
    assert len(fits_seen) == 5


def test_memory_keeps_what_an_initializer_of_a_class_has_learned(data, fits_seen, tmp_path):
    clf = small(warm_start_from=initializer(), memory=str(tmp_path))
    first = clf.fit(*data).theta0_
    clone(clf).set_params(learning_rate_init=0.1).fit(*data)
    assert len(fits_seen) == 1
    assert_starts_at(clone(clf).fit(*data), first)


class Steep(ConvNet):
    """With an attribute that no text of it shows."""

    def __init__(self, slope):
        super().__init__(3, 2)
        self._slope = slope

    def forward(self, x):
        return self._slope * super().forward(x)


def test_memory_keeps_what_a_module_in_a_first_round_has_learned(data, fits_seen, tmp_path):
    def learner(embedding=None, **params):
        coherence = Coherence(n_neighbors=3, batch_size=16, embedding=embedding)
        return initializer(net, coherence=coherence, **params)

    net = seeded(lambda: ConvNet(3, 2))
    first = learner(output="hidden")
    for embedding in (first, make_pipeline(first), FrozenEstimator(clone(first).fit(data[0]))):
        fits_seen.clear()
        source = learner(embedding)
        clf = small(warm_start_from=source, memory=str(tmp_path), max_iter=1)
        for _ in range(2):
            pickle.loads(pickle.dumps(clone(clf))).fit(*data)
        assert len(fits_seen) == (1 if isinstance(embedding, FrozenEstimator) else 2)


def test_memory_keeps_what_an_initializer_of_an_instance_has_learned(data, fits_seen, tmp_path):
    def fit(net, **params):
        source = MMDInitializer(module=net, n_perturbations=2, max_iter=1, random_state=0, **params)
        clf = NetClassifier(
            warm_start_from=source, memory=str(tmp_path), max_iter=1, validation_split=None
        )
        return clf.fit(*data).theta0_

    net = seeded(lambda: Steep(1.0))
    first = fit(net)
    again = fit(copy.deepcopy(net))
    assert len(fits_seen) == 1
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    other = copy.deepcopy(net)
    with torch.no_grad():
        other.fc2.bias.add_(1.0)
    steeper = copy.deepcopy(net)
    steeper._slope = 2.0
    for count, (module, params) in enumerate(
        [(other, {}), (steeper, {}), (net, {"degeneracy_weight": 0.1})], start=2
    ):
        fit(module, **params)
        assert len(fits_seen) == count


class Hooked(ConvNet):
    """With a hook of its own."""

    def doubled(self, layer, inputs, output):
        return 2.0 * output


def doubled(layer, inputs, output):
    return 2.0 * output


def halved(layer, inputs):
    return tuple(0.5 * X for X in inputs)


def test_memory_tells_apart_what_the_state_dict_of_a_module_does_not(data, fits_seen, tmp_path):
    def fit(change=None):
        net = seeded(lambda: Hooked(3, 2))
        net.register_buffer("factor", torch.ones(1), persistent=False)
        if change is not None:
            change(net)
        source = MMDInitializer(module=net, n_perturbations=2, max_iter=1, random_state=0)
        params = {"memory": str(tmp_path), "max_iter": 1, "validation_split": None}
        NetClassifier(warm_start_from=source, **params).fit(*data)

    fit()
    for count, change in enumerate(
        [
            lambda net: net.conv1.weight.requires_grad_(False),
            lambda net: net.factor.fill_(2.0),
            lambda net: net.fc2.register_forward_hook(doubled),
            lambda net: net.fc2.register_forward_pre_hook(halved),
            lambda net: net.fc2.register_forward_hook(net.doubled),
        ],
        start=2,
    ):
        fit(change)
        assert len(fits_seen) == count
        fit(change)
        assert len(fits_seen) == count, "what is the same is known again"


def test_memory_knows_functions_by_their_code(monkeypatch):
    module = types.ModuleType("changes")
    monkeypatch.setitem(sys.modules, "changes", module)

    def known_by(text):
        exec(text, vars(module))
        coherence = Coherence(
            augmentation=partial(module.change, keep=True),
            embedding=make_pipeline(FunctionTransformer(module.flat)),
        )
        return joblib.hash(_known_by(clone(initializer(coherence=coherence))))

    flat = "def flat(X): return X.reshape(len(X), -1)"
    change = "def change(rows, rng, keep, by=0.5): return rows * by if by in {0.1, 0.5} else rows"
    wrapped = (
        "from functools import wraps\n"
        "def plain(f): return wraps(f)(lambda *args, **kwargs: f(*args, **kwargs))\n"
        f"{flat}\n@plain\n{change}"
    )
    texts = [
        f"{flat}\n{change}",
        f"{flat}\n{change.replace('=0.5', '=0.1')}",
        f"{flat}\n{change.replace('else rows', 'else rows / 2')}",
        f"{flat}[:, (lambda: slice(9))()]\n{change}",
        wrapped,
        wrapped.replace("else rows", "else rows / 2"),
    ]
    assert len({known_by(text) for text in texts}) == len(texts)
    for text in texts:
        assert known_by(text) == known_by(f"# Moved by a line.\n{text}")


def test_memory_knows_tied_parameters_and_functions_that_a_layer_holds(monkeypatch):
    module = types.ModuleType("changes")
    monkeypatch.setitem(sys.modules, "changes", module)

    def known_by(text, tied=False):
        exec(text, vars(module))
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        for parameter in net.parameters():
            nn.init.ones_(parameter)
        net.function = module.function
        if tied:
            net[1].weight = net[0].weight
        return joblib.hash(_known_by(net))

    text = "def function(x): return x + 1"
    assert known_by(text) == known_by(f"# Moved by a line.\n{text}")
    assert len({known_by(text), known_by(text.replace("1", "2")), known_by(text, tied=True)}) == 3


# what cannot be a start


def test_a_theta0_of_another_class_is_refused_by_name(data, fitted):
    for source in (fitted, fitted.theta0_):
        with pytest.raises(
            ValueError, match=r"of the module protocol\.networks\.ConvNet, not of .*ResidualNet"
        ):
            small(ResidualNet, warm_start_from=source).fit(*data)
    pipe = make_pipeline(initializer(), small(ResidualNet))
    with pytest.raises(ValueError, match=r"ConvNet, not of .*ResidualNet"):
        pipe.fit(*data)


def test_a_theta0_of_another_shape_is_refused_by_name(data, fitted):
    for source in (fitted, fitted.theta0_, fitted.theta0_.arrays):
        words = r"theta0's array 'conv1.weight' has shape \(2, 1, 3, 3\), but .* \(4, 1, 3, 3\)"
        with pytest.raises(ValueError, match=words):
            small(warm_start_from=source, module__width=4).fit(*data)
    arrays = dict(fitted.theta0_.arrays)
    del arrays["fc1.bias"]
    with pytest.raises(ValueError, match=r"has no array 'fc1.bias'"):
        small(warm_start_from=arrays).fit(*data)
    with pytest.raises(ValueError, match=r"has an array 'fc9.bias', which the module"):
        small(warm_start_from=fitted.theta0_.arrays | {"fc9.bias": np.ones(2)}).fit(*data)
    with pytest.raises(ValueError, match=r"'fc1.bias' holds NaN"):
        small(warm_start_from=arrays | {"fc1.bias": np.full(8, np.nan)}).fit(*data)


def test_a_theta0_of_other_classes_is_refused(data, fitted):
    with pytest.raises(ValueError, match="has n_classes=3, but y has n_classes=2"):
        small(warm_start_from=fitted).fit(data[0], data[1] > 0)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"module__width": 3}, r"MMDInitializer would learn .*'conv1.weight' has shape \(3,"),
        ({"module__n_classes": 2}, r"MMDInitializer would learn .*'fc2.weight'"),
        ({"module": ResidualNet(3)}, r"MMDInitializer would learn .*ResidualNet, not of .*ConvNet"),
    ],
)
def test_what_would_not_fit_is_said_before_it_is_learned(params, words, data, fits_seen):
    init = initializer(**params) if "module" not in params else initializer(params["module"])
    with pytest.raises(ValueError, match=words):
        small(warm_start_from=init).fit(*data)
    assert fits_seen == []


@pytest.mark.parametrize("kind", [MMDInitializer, RandomLabelInitializer])
def test_a_perceptron_is_no_start_of_a_module(kind, data):
    X, y = data[0].reshape(90, -1), data[1]
    own = {"n_perturbations": 2} if kind is MMDInitializer else {}
    init = kind((4,), n_classes=3, max_iter=1, **own)
    module = nn.Sequential(nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=f"{kind.__name__} learns a multi-layer perceptron, but"):
        NetClassifier(module, warm_start_from=init).fit(X, y)
    init.fit(X)
    words = r"multi-layer perceptron with the widths \(64, 4, 3\), but .*Sequential; give"
    for clf in (
        NetClassifier(module, warm_start_from=init),
        NetClassifier(module, warm_start_from=init.theta0_),
        make_pipeline(init, NetClassifier(module)),
    ):
        with pytest.raises(ValueError, match=words):
            clf.fit(X, y)
    with pytest.raises(ValueError, match="give NetClassifier its module"):
        NetClassifier(warm_start_from=init).fit(X, y)


def test_a_module_is_no_start_of_a_perceptron(fits_seen, tmp_path):
    X, y = np.random.default_rng(0).normal(size=(30, 6)), np.arange(30) % 3
    init = initializer(Twice)
    with pytest.raises(ValueError, match=r"MMDInitializer learns a module.*use NetClassifier"):
        MLPClassifier(warm_start_from=init).fit(X, y)
    assert fits_seen == []
    init.fit(X)
    save_theta0(tmp_path / "theta0.safetensors", init)
    for clf in (
        MLPClassifier(warm_start_from=init),
        MLPClassifier((4,), warm_start_from=init.theta0_),
        MLPClassifier(warm_start_from=tmp_path / "theta0.safetensors"),
        make_pipeline(init, MLPClassifier()),
    ):
        with pytest.raises(ValueError, match=r"of the module module_zoo\.Twice, but this class"):
            clf.fit(X, y)


@pytest.mark.parametrize("source", [FrozenEstimator(initializer()), initializer()])
def test_what_is_not_fitted_and_never_will_be(source, data):
    with pytest.raises(NotFittedError, match="never fitted here"):
        small(warm_start_from=source, refit_initializer=False).fit(*data)


@pytest.mark.parametrize("bad", [3.5, ConvNet, MMDInitializer, nn.Linear(1, 1)])
def test_kinds_that_are_not_valid(bad, data):
    with pytest.raises(TypeError, match="warm_start_from must be None, 'auto'"):
        small(warm_start_from=bad).fit(*data)
