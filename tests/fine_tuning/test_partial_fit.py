"""partial_fit: exactly the epochs of fit, one at a time; and what a failure leaves."""

import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from skorch.callbacks import Callback, LRScheduler
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

from nets import Counting, assert_same_arrays, assert_same_weights, digits, fits
from sklearn_mmdinit import MLPClassifier, NetClassifier


@pytest.fixture(scope="module")
def data():
    return digits(91, 3)


def small(**params):
    own = {"hidden_layer_sizes": (8, 6), "max_iter": 3, "batch_size": 15, "random_state": 0}
    return MLPClassifier(**{**own, "validation_split": None, **params})


def assert_same(a, b):
    assert a.loss_curve_ == b.loss_curve_
    assert_same_weights(a, b)


def in_turn(optimizer, last_epoch):
    schedules = [lr_scheduler.StepLR(optimizer, 1), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    return lr_scheduler.SequentialLR(optimizer, schedules, [2], last_epoch=last_epoch)


def rates(policy, **params):
    return {"callbacks": [("rates", LRScheduler(policy, **params))]}


KINDS = {
    "plain": {},
    "steps": rates(lr_scheduler.StepLR, step_size=1),
    "milestones": rates(lr_scheduler.MultiStepLR, milestones=[1, 2]),
    "warm-up": rates(lr_scheduler.ConstantLR, total_iters=2),
    "plateau": rates(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=10.0),
    "one cycle": rates(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=21, step_every="batch"),
    "schedules in turn": rates(in_turn),
    "skorch's own": {"callbacks": [LRScheduler()]},
    "batch norm": {"batch_norm": True},
    "momentum": {"optimizer": "sgd", "optimizer__momentum": 0.9},
    "DataLoader": {"iterator_train": DataLoader},
    "class weight": {"class_weight": {0: 3.0}},
    "unlabelled": {"unlabelled_label": 2},
    "initializer": {"hidden_layer_sizes": None, "warm_start_from": Counting((5,))},
}


@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS)
def test_as_many_calls_as_epochs_equal_fit(params, data):
    X, y = data
    classes = [0, 1] if "unlabelled_label" in params else [0, 1, 2]
    fitted = small(**params).fit(X, y)
    clf = small(**params)
    for _ in range(3):
        assert clf.partial_fit(X, y, classes) is clf
        clf = pickle.loads(pickle.dumps(clf))
    assert_same(clf, fitted)
    assert (clf.n_iter_, clf.best_epoch_, clf.best_validation_loss_) == (3, 2, None)
    assert clf.validation_loss_curve_ is None
    assert_same_arrays(clf.theta0_, fitted.theta0_)


def test_predictions_in_another_thread_leave_training_alone(data):
    X, y = data
    alone, beside = (small(batch_norm=True, max_iter=1).fit(X, y) for _ in range(2))
    ended = threading.Event()

    def predict():
        while not ended.is_set():
            beside.predict_proba(X[:5])

    with ThreadPoolExecutor(1) as other:
        predicting = other.submit(predict)
        for _ in range(20):
            alone.partial_fit(X, y)
            beside.partial_fit(X, y)
        ended.set()
        predicting.result()
    assert_same(beside, alone)
    np.testing.assert_array_equal(beside.predict_proba(X), alone.predict_proba(X))


def test_it_goes_on_from_fit(data):
    clf = small(max_iter=2).fit(*data)
    assert_same(clf.partial_fit(*data), small(max_iter=3).fit(*data))
    assert_same(clf.fit(*data), small(max_iter=2).fit(*data))


def test_it_goes_on_from_the_best_epoch(data):
    X, y = data
    noisy = np.random.default_rng(0).permutation(y)
    clf = small(hidden_layer_sizes=(64,), validation_split=0.3, max_iter=8, learning_rate_init=0.01)
    clf.fit(X, noisy)
    assert clf.best_epoch_ < 7, "the case is worth testing"
    before = clf.coefs_[0]
    clf.set_params(learning_rate_init=1.0)  # without effect until fit
    clf.partial_fit(X[:1], noisy[:1])
    assert 0 < np.abs(clf.coefs_[0] - before).max() < 0.1
    assert (clf.n_iter_, clf.best_epoch_, clf.best_validation_loss_) == (9, 8, None)
    assert len(clf.loss_curve_) == 9


def test_classes_may_be_missing_from_the_first_rows(data):
    X, y = data
    clf = small().partial_fit(X[y == 1], y[y == 1], classes=[2, 0, 1, 3])
    assert clf.classes_.tolist() == [0, 1, 2, 3]
    assert clf.predict_proba(X).shape == (91, 4)
    clf.partial_fit(X[:1], y[:1], classes=[3, 2, 1, 0])


def test_an_initializer_learns_from_the_first_rows_alone(data):
    X, y = data
    fits.clear()
    clf = small(hidden_layer_sizes=None, unlabelled_label=2, warm_start_from=Counting(n_classes=2))
    for rows in (slice(0, 40), slice(40, 91)):
        clf.partial_fit(X[rows], y[rows], classes=[0, 1])
    assert fits == [40], "unlabelled ones among them"


@pytest.mark.parametrize("kind", ["batch norm", "momentum", "DataLoader", "steps"])
def test_an_epoch_that_fails_leaves_no_trace(kind, data):
    X, y = data
    clf, never = (small(**KINDS[kind]) for _ in range(2))
    for _ in range(2):
        clf.partial_fit(X, y, classes=[0, 1, 2])
        never.partial_fit(X, y, classes=[0, 1, 2])
    before = clf.predict_proba(X)
    with pytest.raises(ValueError, match="no longer finite"):
        clf.partial_fit(X * np.float32(3e38), y)
    np.testing.assert_array_equal(clf.predict_proba(X), before)
    assert clf.n_iter_ == 2
    assert len(clf.net_.history) == 2
    # And goes on as if it had never been.
    assert_same(clf.partial_fit(X, y), never.partial_fit(X, y))


class Stop(Callback):
    """Ends a training in the way of skorch's own, when it is told something for the n-th time."""

    def __init__(self, event, n=1):
        self.event, self.n = event, n

    def initialize(self):
        self.n_left = self.n
        setattr(self, self.event, self.stop)
        return self

    def stop(self, net, **kwargs):
        self.n_left -= 1
        if not self.n_left:
            raise KeyboardInterrupt


class Interrupted(nn.Linear):
    """Raises what Ctrl-C does in a forward pass of training, once `n_left` have passed."""

    n_left = math.inf

    def forward(self, X):
        Interrupted.n_left -= self.training
        if self.training and Interrupted.n_left < 0:
            raise KeyboardInterrupt
        return super().forward(X)


def test_an_interrupt_is_not_the_end_of_a_training(data, monkeypatch):
    clf = NetClassifier(Interrupted(64, 3), batch_size=15, max_iter=1, random_state=0)
    monkeypatch.setattr(Interrupted, "n_left", 3)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(*data)
    assert not hasattr(clf, "net_")
    Interrupted.n_left = math.inf
    before = clf.fit(*data).predict_proba(data[0])
    Interrupted.n_left = 3
    with pytest.raises(KeyboardInterrupt):
        clf.partial_fit(*data)
    np.testing.assert_array_equal(clf.predict_proba(data[0]), before)
    assert clf.n_iter_ == 1


@pytest.mark.parametrize("split", [None, 0.2])
@pytest.mark.parametrize(
    ("event", "n", "n_epochs"),
    [
        *(("on_train_begin", 1, 0), ("on_train_end", 1, 3), ("on_epoch_end", 2, 2)),
        *(("on_epoch_begin", 2, 1), ("on_batch_end", 1, 0), ("on_batch_end", 12, 2)),
    ],
)
def test_a_callback_may_end_a_training_anywhere(event, n, n_epochs, split, data):
    params = {"max_iter": 3, "batch_size": 30, "validation_split": split}
    clf = small(callbacks=[Stop(event, n)], **params).fit(*data)
    assert len(clf.loss_curve_) == len(clf.history_) == clf.n_iter_ == n_epochs
    losses = small(**params).fit(*data).validation_loss_curve_
    if split is None or not n_epochs:
        assert clf.best_epoch_ == (n_epochs - 1 if n_epochs else None)
        assert clf.validation_loss_curve_ is None
    else:
        assert clf.validation_loss_curve_ == losses[:n_epochs]
        assert clf.best_epoch_ == np.argmin(losses[:n_epochs])
    assert clf.to_sklearn().n_iter_ == n_epochs


def test_a_fit_that_fails_leaves_the_classifier_as_it_was(data):
    X, y = data
    clf = small(warm_start_from=Counting((8, 6)).fit(X), activation="tanh").fit(X, y)
    before = clf.predict_proba(X), sorted(vars(clf))
    with pytest.raises(ValueError, match="at least two classes"):
        clf.fit(X, y > 5)
    with pytest.raises(ValueError, match="50"):
        clf.partial_fit(X[:, :50], y)
    with pytest.raises(ValueError, match="no longer finite"):
        clf.set_params(learning_rate_init=1e38, optimizer="sgd").fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), before[0])
    assert (clf.classes_.tolist(), sorted(vars(clf))) == ([0, 1, 2], before[1])
    fresh = NetClassifier(nn.Linear(64, 7))
    with pytest.raises(ValueError, match="7 logits"):
        fresh.fit(X, y)
    assert vars(fresh).keys() == vars(NetClassifier()).keys()
