"""MLPClassifier: the training that it promises, and its answers to bad input."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import PredefinedSplit
from skorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader

from nets import Pooled, assert_same_weights, digits
from sklearn_mmdinit import MLPClassifier, MMDInitializer, NetClassifier
from sklearn_mmdinit.fine_tuning.labels import split_examples
from sklearn_mmdinit.fine_tuning.net import RowLoader, Rows


@pytest.fixture(scope="module")
def data():
    return digits(300)


def small(**params):
    return MLPClassifier(**{"hidden_layer_sizes": (16,), "random_state": 0, **params})


@pytest.mark.parametrize("normalizes", [False, True])  # running statistics are kept with it
def test_the_epoch_with_the_lowest_validation_loss_is_kept(normalizes, data):
    X, y = data
    noisy = np.random.default_rng(0).permutation(y)  # nothing to learn: it overfits
    clf = small(hidden_layer_sizes=(64,))
    if normalizes:
        clf = NetClassifier(Pooled, module__width=256, module__batch_norm=True, random_state=0)
    clf.set_params(max_iter=8, learning_rate_init=1e-2).fit(X, noisy)
    losses = clf.validation_loss_curve_
    assert clf.best_epoch_ == np.argmin(losses) < 7, "the case is worth testing"
    assert clf.best_validation_loss_ == min(losses)
    # A run that ends there has the same parameters.
    shorter = clone(clf).set_params(max_iter=clf.best_epoch_ + 1).fit(X, noisy)
    assert_same_weights(clf, shorter)
    longer = clone(clf).set_params(validation_split=None).fit(X, noisy)
    assert longer.best_epoch_ == 7
    assert longer.best_validation_loss_ is None
    assert longer.validation_loss_curve_ is None


def test_a_splitter_validates(data):
    X, y = data
    fold = np.full(len(X), -1)
    fold[:50] = 0
    by_splitter = small(validation_split=PredefinedSplit(fold), max_iter=2).fit(X, y)
    by_pair = small(validation_split=(X[:50], y[:50]), max_iter=2).fit(X[50:], y[50:])
    np.testing.assert_array_equal(by_splitter.coefs_[0], by_pair.coefs_[0])
    with pytest.raises(ValueError, match="0 training and 0 validation examples"):
        small(validation_split=PredefinedSplit(np.full(len(X), -1))).fit(X, y)


def test_a_fraction_is_stratified_where_possible():
    y = np.repeat([0, 1], [60, 30])
    train, valid = split_examples(1 / 6, y[:, None], y, seed=0)
    assert np.bincount(y[valid]).tolist() == [10, 5]
    assert sorted([*train, *valid]) == list(range(90))
    # A class of one member, and fewer validation rows than classes: each stays with one row.
    for seed in range(20):
        for y in (np.array([0] * 11 + [1]), np.arange(12) % 6):
            train, valid = split_examples(1 / 6, y[:, None], y, seed=seed)
            assert (len(train), len(valid)) == (10, 2)
            assert set(y[train]) == set(y)
    train, valid = split_examples(1 / 6, y[:5, None], y[:5], seed=0)
    assert (train.tolist(), valid.tolist()) == ([0, 1, 2, 3, 4], [])


def test_one_label_of_each_class_is_learned_by_default():
    X, y = load_digits(return_X_y=True)
    one = [np.flatnonzero(y == c)[3] for c in range(10)]
    clf = small(max_iter=300, learning_rate_init=1e-2).fit(X[one] / 16, y[one])
    assert clf.score(X[one] / 16, y[one]) == 1.0
    assert clf.best_validation_loss_ is None


GELU = {"activation": "gelu", "max_iter": 6, "learning_rate_init": 1e-2}
FIGURES = {
    "default": ({}, 2.20723295, 2.23255873),
    "sgd": ({"validation_split": None, "optimizer": "sgd"}, None, 2.35138428),
    "gelu": (GELU, 0.93624407, 1.04676003),
}


@pytest.mark.parametrize(("params", "valid", "train"), FIGURES.values(), ids=FIGURES)
def test_losses_are_what_they_were(params, valid, train, data):
    clf = small(**{"hidden_layer_sizes": (16, 8), "max_iter": 5, **params}).fit(*data)
    assert clf.best_validation_loss_ == (valid and pytest.approx(valid, rel=1e-5))
    assert clf.loss_curve_[-1] == pytest.approx(train, rel=1e-5)


DROPOUT = nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.2))


@pytest.mark.parametrize(
    "clf",
    [small(iterator_train=DataLoader, batch_size=16), NetClassifier(DROPOUT, random_state=0)],
    ids=["DataLoader", "dropout"],
)
def test_seeds_decide_all_and_global_generators_are_not_touched(clf, data):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    a = clone(clf.set_params(max_iter=2)).fit(*data)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(x, y) for x, y in zip(np.random.get_state(), numpy_state))  # noqa: B905, NPY002
    torch.manual_seed(12345)
    b = clone(clf).fit(*data)
    torch.set_rng_state(torch_state)
    assert_same_weights(a, b)
    assert clone(clf).set_params(random_state=1).fit(*data).loss_curve_ != a.loss_curve_


def test_batches_cover_every_row_once_in_a_new_order():
    X = np.arange(23, dtype=np.float32)[:, None]
    iterator = RowLoader(Rows(X, np.arange(23)), 5, shuffle=True, generator=torch.Generator())
    orders = [torch.cat([y for _, y in iterator]).tolist() for _ in range(2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(23))
    for Xi, yi in iterator:
        np.testing.assert_array_equal(Xi[:, 0], yi)
    assert [len(y) for _, y in iterator] == [5, 5, 5, 5, 3]
    assert len(iterator) == 5


def test_probabilities_are_such_by_any_criterion(data):
    clf = small(criterion=nn.MultiMarginLoss, max_iter=2).fit(*data)
    with torch.no_grad():
        expected = clf.module_.eval()(torch.from_numpy(data[0].astype(np.float32))).softmax(1)
    np.testing.assert_allclose(clf.predict_proba(data[0]), expected, atol=1e-6)
    assert clone(clf).set_params(predict_nonlinearity="auto").fit(*data).net_.predict_nonlinearity


def test_parameters_of_skorch_can_be_set(data):
    own = {"optimizer__weight_decay": 0.2, "criterion__label_smoothing": 0.1, "verbose": 0}
    own |= {"iterator_valid__batch_size": 7, "callbacks__print_log": None}
    clf = small(**own, max_iter=1)
    clf.set_params(iterator_train__shuffle=False, optimizer__eps=1e-7)
    own |= {"iterator_train__shuffle": False, "optimizer__eps": 1e-7}
    for one in (clf, clone(clf), clone(clf).fit(*data)):
        assert one.get_params().items() >= own.items()
        assert one.get_params(deep=False).items() >= own.items()
    assert "optimizer__eps=1e-07" in repr(clf)
    assert joblib.hash(clf) == joblib.hash(clone(clf))
    (group,) = clf.fit(*data).net_.optimizer_.param_groups
    assert (group["weight_decay"], group["eps"]) == (0.2, 1e-7)


def test_minus_one_among_several_classes_is_a_class(data):
    X, y = data
    clf = small(max_iter=1).fit(X, y - 1)
    assert clf.classes_.tolist() == [*range(-1, 9)]


@pytest.mark.parametrize("kind", [MLPClassifier, NetClassifier, MMDInitializer])
@pytest.mark.parametrize("name", ["lr", "max_epochs", "solver", "class_weights"])
def test_an_unknown_parameter_is_named(kind, name):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no parameter '{name}'"):
        kind(**{name: 1})
    with pytest.raises(ValueError, match=f"Invalid parameter '{name}'"):
        kind().set_params(**{name: 1})


class Recorder(Callback):
    def on_epoch_end(self, net, **kwargs):
        self.epochs_ = len(net.history)


def test_callbacks_run_on_copies(data):
    mine = Recorder()
    clf = small(callbacks=[("recorder", mine)], max_iter=3).fit(*data)
    assert not hasattr(mine, "epochs_")
    assert dict(clf.net_.callbacks_)["recorder"].epochs_ == 3
    assert clone(clf).callbacks[0][1] is not mine


class Ending(Callback):
    """Ends training as skorch's callbacks do."""

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 2:
            raise KeyboardInterrupt


class Interrupting(torch.optim.SGD):
    """Is interrupted as by Ctrl-C."""

    def step(self, closure=None):
        raise KeyboardInterrupt


def test_a_callback_may_end_training_and_an_interrupt_raises(data):
    clf = small(callbacks=[Ending()], max_iter=5).fit(*data)
    assert clf.n_iter_ == len(clf.loss_curve_) == 2
    module = nn.Sequential(nn.Linear(64, 10), nn.Dropout())
    net = NetClassifier(module, max_iter=2, random_state=0).fit(*data)
    before = net.predict_proba(data[0])
    with pytest.raises(KeyboardInterrupt):
        net.set_params(optimizer=Interrupting).fit(*data)
    np.testing.assert_array_equal(net.predict_proba(data[0]), before)


def on_scale(scale, seed=0):
    frame = pd.DataFrame(np.random.default_rng(seed).normal(size=(120, 3)), columns=list("abc"))
    frame["b"] *= scale
    return frame, np.arange(120) % 2


NAMED = "X is not scaled: column 'b' holds values of about 1000;"
LEARNERS = {
    "initializer": lambda: MMDInitializer((3,), max_iter=0),
    "classifier": lambda: MLPClassifier((3,), max_iter=1),
    "both": lambda: MLPClassifier(warm_start_from=MMDInitializer((3,), max_iter=0), max_iter=1),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_that_are_not_scaled_are_told_once(name):
    with pytest.warns(UserWarning, match=NAMED) as told:
        LEARNERS[name]().fit(*on_scale(1000))
    assert len(told) == 1
    (X, y), learner = on_scale(10), LEARNERS[name]()
    for scaled in (X, (X - X.min()) / (X.max() - X.min()), np.abs(X) > 1, np.exp(X / X.max())):
        learner.fit(scaled, y)


def test_other_kinds_of_rows_that_are_not_scaled():
    pixels, y = np.random.default_rng(0).integers(0, 256, size=(60, 1, 8, 8)), np.arange(60) % 2
    net = NetClassifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), max_iter=0)
    with pytest.warns(UserWarning, match="X is not scaled: it holds values of about 200;"):
        net.fit(pixels, y)
    net.fit(pixels / 255, y)
    net.fit(pixels / 255**2, y)
    X, y = on_scale(1000)
    with pytest.warns(UserWarning, match="column 1 holds"):
        MLPClassifier((3,), max_iter=0).fit(csr_array(X.to_numpy()), y)
