"""MLPClassifier and NetClassifier: the training they promise, and answers to bad input."""

import copy

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from skorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader

from helpers import seeded
from module_zoo import Words, tokens
from nets import Conv, Pooled, assert_same_weights, digit_images, digits
from sklearn_mmdinit import MLPClassifier, MMDInitializer, NetClassifier
from sklearn_mmdinit.fine_tuning.labels import split_examples
from sklearn_mmdinit.fine_tuning.net import RowLoader, Rows

ROWS, FEW, IMAGES = digits(300), digits(120), digit_images(120)


def small(**params):
    return MLPClassifier(**{"hidden_layer_sizes": (16,), "random_state": 0, **params})


def of_net(module=Conv, **params):
    return NetClassifier(module, **{"max_iter": 2, "random_state": 0, **params})


@pytest.mark.parametrize("normalizes", [False, True])  # running statistics are kept with it
def test_the_epoch_with_the_lowest_validation_loss_is_kept(normalizes):
    X, y = ROWS
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


def test_a_splitter_validates():
    X, y = ROWS
    fold = np.full(len(X), -1)
    fold[:50] = 0
    by_splitter = small(validation_split=PredefinedSplit(fold), max_iter=2).fit(X, y)
    by_pair = small(validation_split=(X[:50], y[:50]), max_iter=2).fit(X[50:], y[50:])
    np.testing.assert_array_equal(by_splitter.coefs_[0], by_pair.coefs_[0])
    with pytest.raises(ValueError, match="not enough values to unpack") as error:
        small(validation_split=PredefinedSplit(np.full(len(X), -1))).fit(X, y)
    assert error.value.__notes__[0].startswith("validation_split=PredefinedSplit")


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
    y = np.repeat([0, 1, 2], [500, 500, 2])
    assert set(y[split_examples(0.9, y[:, None], y, seed=0)[0]]) == {0, 1, 2}


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
def test_losses_are_what_they_were(params, valid, train):
    clf = small(**{"hidden_layer_sizes": (16, 8), "max_iter": 5, **params}).fit(*ROWS)
    assert clf.best_validation_loss_ == (valid and pytest.approx(valid, rel=1e-5))
    assert clf.loss_curve_[-1] == pytest.approx(train, rel=1e-5)


DROPOUT = nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.2))


@pytest.mark.parametrize(
    "clf",
    [small(iterator_train=DataLoader, batch_size=16), NetClassifier(DROPOUT, random_state=0)],
    ids=["DataLoader", "dropout"],
)
def test_seeds_decide_all_and_global_generators_are_not_touched(clf):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    a = clone(clf.set_params(max_iter=2)).fit(*ROWS)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(x, y) for x, y in zip(np.random.get_state(), numpy_state))  # noqa: B905, NPY002
    torch.manual_seed(12345)
    b = clone(clf).fit(*ROWS)
    torch.set_rng_state(torch_state)
    assert_same_weights(a, b)
    assert clone(clf).set_params(random_state=1).fit(*ROWS).loss_curve_ != a.loss_curve_


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


def test_probabilities_are_such_by_any_criterion():
    clf = small(criterion=nn.MultiMarginLoss, max_iter=2).fit(*ROWS)
    with torch.no_grad():
        expected = clf.module_.eval()(torch.from_numpy(ROWS[0].astype(np.float32))).softmax(1)
    np.testing.assert_allclose(clf.predict_proba(ROWS[0]), expected, atol=1e-6)
    assert clone(clf).set_params(predict_nonlinearity="auto").fit(*ROWS).net_.predict_nonlinearity


def test_parameters_of_skorch_can_be_set():
    own = {"optimizer__weight_decay": 0.2, "criterion__label_smoothing": 0.1, "verbose": 0}
    own |= {"iterator_valid__batch_size": 7, "callbacks__print_log": None}
    clf = small(**own, max_iter=1)
    clf.set_params(iterator_train__shuffle=False, optimizer__eps=1e-7)
    own |= {"iterator_train__shuffle": False, "optimizer__eps": 1e-7}
    for one in (clf, clone(clf), clone(clf).fit(*ROWS)):
        assert one.get_params().items() >= own.items()
        assert one.get_params(deep=False).items() >= own.items()
    assert "optimizer__eps=1e-07" in repr(clf)
    assert joblib.hash(clf) == joblib.hash(clone(clf))
    (group,) = clf.fit(*ROWS).net_.optimizer_.param_groups
    assert (group["weight_decay"], group["eps"]) == (0.2, 1e-7)


@pytest.mark.parametrize("kind", [MLPClassifier, NetClassifier, MMDInitializer])
@pytest.mark.parametrize("name", ["lr", "max_epochs", "solver", "class_weights"])
def test_an_unknown_parameter_is_named(kind, name):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no parameter '{name}'"):
        kind(**{name: 1})
    with pytest.raises(ValueError, match=f"Invalid parameter '{name}'"):
        kind().set_params(**{name: 1})


class Ending(Callback):
    """Counts epochs, and ends training as skorch's callbacks do."""

    def on_epoch_end(self, net, **kwargs):
        self.epochs_ = len(net.history)
        if self.epochs_ == 2:
            raise KeyboardInterrupt


class Interrupting(torch.optim.SGD):
    """Is interrupted as by Ctrl-C."""

    def step(self, closure=None):
        raise KeyboardInterrupt


def test_a_copy_of_a_callback_may_end_training_and_an_interrupt_raises():
    mine = Ending()
    clf = small(callbacks=[("ending", mine)], max_iter=5).fit(*ROWS)
    assert clf.n_iter_ == len(clf.loss_curve_) == 2
    assert dict(clf.net_.callbacks_)["ending"].epochs_ == 2
    assert not hasattr(mine, "epochs_")
    assert clone(clf).callbacks[0][1] is not mine
    module = nn.Sequential(nn.Linear(64, 10), nn.Dropout())
    net = NetClassifier(module, max_iter=2, random_state=0).fit(*ROWS)
    before = net.predict_proba(ROWS[0])
    with pytest.raises(KeyboardInterrupt):
        net.set_params(optimizer=Interrupting).fit(*ROWS)
    np.testing.assert_array_equal(net.predict_proba(ROWS[0]), before)


def on_scale(scale, seed=0):
    frame = pd.DataFrame(np.random.default_rng(seed).normal(size=(120, 3)), columns=list("abc"))
    frame["b"] *= scale
    return frame, np.arange(120) % 2


LEARNERS = {
    "initializer": lambda: MMDInitializer((3,), max_iter=0),
    "classifier": lambda: MLPClassifier((3,), max_iter=1),
    "both": lambda: MLPClassifier(warm_start_from=MMDInitializer((3,), max_iter=0), max_iter=1),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_that_are_not_scaled_are_told_once(name):
    with pytest.warns(UserWarning, match="column 'b' holds values of about 1000;") as told:
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
        MLPClassifier((3,), max_iter=0).fit(sp.csr_array(X.to_numpy()), y)


def test_an_instance_is_copied_and_gives_the_fresh_weights():
    module = Conv(10).eval()
    before = copy.deepcopy(module.state_dict())
    clf = of_net(module, max_iter=1).fit(*IMAGES)
    assert clf.module is module
    assert clf.module_ is not module
    assert not module.training
    untrained = NetClassifier(module, max_iter=0, random_state=5).fit(*IMAGES)
    start = {name: torch.tensor(array) for name, array in clf.theta0_.arrays.items()}
    for state in (module.state_dict(), untrained.module_.state_dict(), start):
        torch.testing.assert_close(dict(state), dict(before), rtol=0, atol=0)


def test_a_class_is_handed_the_number_of_classes():
    X, y = IMAGES
    for n_classes in (2, 5):
        clf = of_net().fit(X, y % n_classes)
        assert clf.module_.head.out_features == n_classes
        assert "module__n_classes" not in clf.get_params()
    assert small(max_iter=1).fit(X.reshape(120, 64), y - 1).classes_.tolist() == [*range(-1, 9)]
    labels = np.array(["even", "odd"])[y % 2]
    assert set(of_net().fit(X, labels).predict(X)) <= {"even", "odd"}
    for clf in (of_net(module__n_classes=7), NetClassifier(Conv(7))):
        with pytest.raises(ValueError, match=r"10 classes.*7 logits"):
            clf.fit(X, y)


class Chosen(nn.Linear):
    """A layer for as many columns as a step before has left."""

    def __init__(self, n_features, n_classes):
        super().__init__(n_features, n_classes)


def test_a_class_is_handed_the_number_of_columns_where_it_has_no_default():
    X, y = FEW[0][:, [20, 21, 26, 28, 36]], FEW[1]
    clf = of_net(Chosen, max_iter=1)
    init = MMDInitializer(module=Chosen, n_perturbations=4, max_iter=1, batch_size=8)
    for start in (None, init):
        pipeline = make_pipeline(SelectKBest(), clone(clf).set_params(warm_start_from=start))
        search = GridSearchCV(pipeline, {"selectkbest__k": [2, 5]}, cv=2, error_score="raise")
        search.fit(X, y)
        k = search.best_params_["selectkbest__k"]
        assert search.best_estimator_[-1].module_.in_features == k
    with pytest.raises(RuntimeError, match="4x5 and 7x10"):
        clf.set_params(module__n_features=7).fit(X, y)


def test_tokens_are_handed_on_as_whole_numbers():
    X = tokens(90)
    y = np.array(["a", "b", "c"])[X[:, 0] % 3]
    clf = NetClassifier(Words, max_iter=15, learning_rate_init=0.1, random_state=0).fit(X, y)
    assert clf.score(X, y) > 0.5
    expected = clf.predict_proba(X)
    for same in (X.astype(np.int32), X.astype(float), X.tolist()):
        np.testing.assert_array_equal(clf.predict_proba(same), expected)
    with pytest.raises(ValueError, match=r"whole numbers, as it did in fit, got 0\.5"):
        clf.predict(np.full((1, 5), 0.5))


def test_examples_of_another_shape_are_refused_until_fit():
    X, y = IMAGES
    clf = of_net(max_iter=0).fit(X, y)
    for other in (X.reshape(-1, 64), X.reshape(-1, 1, 4, 16)):
        with pytest.raises(ValueError, match=r"shape.*\(1, 8, 8\)"):
            clf.predict(other)
    clf.set_params(module__side=16).fit(X.repeat(2, axis=2).repeat(2, axis=3), y)
    assert (clf.input_shape_, clf.n_features_in_) == ((1, 16, 16), 256)
    with pytest.raises(RuntimeError, match=r"\[4, 64\]"):
        of_net().fit(*FEW)


NORMALISED = nn.Sequential(nn.Linear(64, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 10))


def test_rows_that_overflow_in_the_network_are_refused():
    X, y = FEW[0].astype(np.float32), FEW[1]
    clf = NetClassifier(NORMALISED, max_iter=1, random_state=0).fit(X, y)
    far = X.copy()
    far[3:5] *= np.float32(1e25)
    for call in (clf.predict_proba, clf.predict, lambda rows: clf.score(rows, y)):
        with pytest.raises(ValueError, match="probabilities of X are not finite"):
            call(far)


def test_batch_normalization_leaves_a_single_last_row_out():
    X, y = FEW[0], FEW[1] % 2
    clf = NetClassifier(Pooled, module__batch_norm=True, validation_split=None, random_state=0)
    clf.fit(X[:101], y[:101])
    assert np.isfinite(clf.loss_curve_).all()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        clf.set_params(batch_size=1).fit(X, y)


@pytest.mark.parametrize("iterator", [{}, {"iterator_train__shuffle": False}])
def test_a_module_that_works_in_place_leaves_the_rows_as_they_are(iterator):
    X, y = FEW
    found = []
    for in_place in (True, False):
        own, valid = X.copy(), X[:30].copy()
        net = nn.Sequential(nn.Hardtanh(0.0, 0.5, inplace=in_place), seeded(lambda: Pooled(10)))
        clf = of_net(net, validation_split=(valid, y[:30]), **iterator).fit(own, y)
        proba = clf.predict_proba(own)
        np.testing.assert_array_equal(own, X)
        np.testing.assert_array_equal(valid, X[:30])
        found.append((clf.validation_loss_curve_, clf.loss_curve_, proba.tolist()))
    assert found[0] == found[1]


def test_sparse_rows_have_the_numbers_of_dense_ones():
    X, y = FEW[0], FEW[1] % 3
    for make, dtype, params in (
        (sp.csr_array, np.float32, {}),
        (sp.csc_array, np.int8, {"class_weight": {0: 2.0, 1: 0.0}}),
        (sp.coo_matrix, np.float64, {"iterator_train": DataLoader, "iterator_valid": DataLoader}),
        (sp.csr_array, np.float32, {"validation_split": (sp.csc_array(X[:20]), y[:20])}),
    ):
        rows = (8 * X).astype(dtype)
        clf = small(**params, max_iter=2, batch_size=15)
        dense, sparse = clf.fit(rows, y), clone(clf).fit(make(rows), y)
        assert_same_weights(dense, sparse)
        assert dense.validation_loss_curve_ == sparse.validation_loss_curve_
        np.testing.assert_array_equal(sparse.predict_proba(make(rows)), dense.predict_proba(rows))
        np.testing.assert_array_equal(sparse.predict(make(rows)), dense.predict(rows))
        assert sparse.score(make(rows), y) == dense.score(rows, y)


def test_rows_become_dense_a_batch_at_a_time(monkeypatch):
    X, y = digits(100, 3)
    sizes, toarray = [], sp.csr_array.toarray

    def counted(self, *args, **kwargs):
        sizes.append(self.shape[0])
        return toarray(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", counted)
    clf = small(max_iter=1, batch_size=15, iterator_valid__batch_size=20)
    clf.fit(sp.csr_array(X), y).predict_proba(sp.csr_array(X))
    # The inspection; 83 rows in batches of 15, 17 to validate; then all of them.
    assert sizes == [4, *[15] * 5, 8, 17, *[20] * 5]


@pytest.mark.parametrize("weighted", [False, True])
def test_skops_loads_what_it_has_dumped(weighted):
    skops = pytest.importorskip("skops.io", reason="a package of its own")
    X, y = FEW
    clf = NetClassifier(Chosen, max_iter=2, random_state=0)
    file = skops.dumps(clf.fit(X, y, np.ones(len(y)) if weighted else None))
    loaded = skops.loads(file, trusted=skops.get_untrusted_types(data=file))
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))


class Auxiliary(nn.Linear):
    """Two heads while training, as of GoogLeNet; the second is for a loss of one's own."""

    def forward(self, x):
        logits = super().forward(x)
        return (logits, logits[:, :1]) if self.training else logits


def test_of_a_tuple_in_training_mode_the_first_part_is_trained():
    nets = [seeded(lambda kind=kind: kind(64, 10)) for kind in (nn.Linear, Auxiliary)]
    plain, auxiliary = (NetClassifier(net, max_iter=2, random_state=0).fit(*FEW) for net in nets)
    np.testing.assert_array_equal(plain.predict_proba(FEW[0]), auxiliary.predict_proba(FEW[0]))
