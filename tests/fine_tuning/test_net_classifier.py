"""NetClassifier: the training of MLPClassifier, of any module, from wherever it is to start."""

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from skorch import NeuralNetClassifier
from torch import nn

from helpers import default_dtype, seeded
from module_zoo import Words, tokens
from nets import Conv, Pooled, assert_same_weights, digit_images, digits
from sklearn_mmdinit import MMDInitializer, NetClassifier


@pytest.fixture(scope="module")
def flat():
    return digits(120)


@pytest.fixture(scope="module")
def data():
    return digit_images(120)


def small(module=Conv, **params):
    return NetClassifier(module, **{"max_iter": 2, "random_state": 0, **params})


def test_an_instance_is_copied_and_gives_the_fresh_weights(data):
    module = Conv(10).eval()
    before = copy.deepcopy(module.state_dict())
    clf = NetClassifier(module, max_iter=1, random_state=0).fit(*data)
    assert clf.module is module
    assert clf.module_ is not module
    assert not module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
        np.testing.assert_array_equal(clf.theta0_.arrays[name], value)
    untrained = NetClassifier(module, max_iter=0, random_state=5).fit(*data)
    for name, value in untrained.module_.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_class_is_handed_the_number_of_classes(data):
    X, y = data
    for n_classes in (2, 5):
        clf = small().fit(X, y % n_classes)
        assert clf.module_.head.out_features == n_classes
        assert "module__n_classes" not in clf.get_params()
    labels = np.array(["even", "odd"])[y % 2]
    assert set(small().fit(X, labels).predict(X)) <= {"even", "odd"}
    for clf in (small(module__n_classes=7), NetClassifier(Conv(7))):
        with pytest.raises(ValueError, match=r"10 classes.*7 logits"):
            clf.fit(X, y)


class Chosen(nn.Linear):
    """A layer for as many columns as a step before has left."""

    def __init__(self, n_features, n_classes):
        super().__init__(n_features, n_classes)


def test_a_class_is_handed_the_number_of_columns_where_it_has_no_default(flat):
    X, y = flat[0][:, [20, 21, 26, 28, 36]], flat[1]
    clf = NetClassifier(Chosen, max_iter=1, random_state=0)
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


def test_examples_of_another_shape_are_refused_until_fit(data, flat):
    X, y = data
    clf = small(max_iter=0).fit(X, y)
    for other in (X.reshape(-1, 64), X.reshape(-1, 1, 4, 16)):
        with pytest.raises(ValueError, match=r"shape.*\(1, 8, 8\)"):
            clf.predict(other)
    clf.set_params(module__side=16).fit(X.repeat(2, axis=2).repeat(2, axis=3), y)
    assert (clf.input_shape_, clf.n_features_in_) == ((1, 16, 16), 256)
    with pytest.raises(RuntimeError, match=r"\[4, 64\]"):
        small().fit(*flat)


NORMALISED = nn.Sequential(nn.Linear(64, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 10))


def test_rows_that_overflow_in_the_network_are_refused(flat):
    X, y = flat[0].astype(np.float32), flat[1]
    clf = NetClassifier(NORMALISED, max_iter=1, random_state=0).fit(X, y)
    far = X.copy()
    far[3:5] *= np.float32(1e25)
    for call in (clf.predict_proba, clf.predict, lambda rows: clf.score(rows, y)):
        with pytest.raises(ValueError, match="of 2 rows of X are not finite, such as row 3"):
            call(far)
    before = clf.predict_proba(X)
    with pytest.raises(ValueError, match="validation loss of every epoch is nan"):
        clf.set_params(validation_split=(far, y)).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), before)


def test_batch_normalization_leaves_a_single_last_row_out(flat):
    X, y = flat[0], flat[1] % 2
    clf = NetClassifier(Pooled, module__batch_norm=True, validation_split=None, random_state=0)
    clf.fit(X[:101], y[:101])
    assert np.isfinite(clf.loss_curve_).all()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        clf.set_params(batch_size=1).fit(X, y)


@pytest.mark.parametrize("iterator", [{}, {"iterator_train__shuffle": False}])
def test_a_module_that_works_in_place_leaves_the_rows_as_they_are(flat, iterator):
    X, y = flat
    found = []
    for in_place in (True, False):
        own, valid = X.copy(), X[:30].copy()
        net = nn.Sequential(nn.Hardtanh(0.0, 0.5, inplace=in_place), seeded(lambda: Pooled(10)))
        clf = small(net, validation_split=(valid, y[:30]), **iterator).fit(own, y)
        proba = clf.predict_proba(own)
        np.testing.assert_array_equal(own, X)
        np.testing.assert_array_equal(valid, X[:30])
        found.append((clf.validation_loss_curve_, clf.loss_curve_, proba.tolist()))
    assert found[0] == found[1]


def test_settings_of_pytorch_make_no_difference(flat):
    X, y = flat
    module = seeded(lambda: Pooled(10))
    plain = small(module).fit(X, y)
    with torch.no_grad():
        assert_same_weights(small(module).fit(X, y), plain)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        small(module).fit(X, y)
    with default_dtype(torch.float64):
        assert_same_weights(small(module).fit(X, y), plain)


def test_a_skorch_net_starts_at_theta0_in_each_fit(data):
    own = {"n_perturbations": 2, "max_iter": 1, "random_state": 0}
    init = MMDInitializer(module=Conv, module__n_classes=10, **own).fit(data[0])
    criterion = nn.CrossEntropyLoss
    net = NeuralNetClassifier(init.to_module, criterion=criterion, max_epochs=1, verbose=0)
    theta0 = init.theta0_.arrays["head.weight"]
    for one in (net, net, clone(net)):
        one.fit(*data)
        assert not np.array_equal(one.module_.head.weight.detach().numpy(), theta0)
        one.initialize()
        np.testing.assert_array_equal(one.module_.head.weight.detach().numpy(), theta0)
