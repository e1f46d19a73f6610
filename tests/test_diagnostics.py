"""Diagnostics of networks whose answers are known."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.frozen import FrozenEstimator
from torch import nn

from nets import Conv, digit_images
from sklearn_mmdinit import MLP, Architecture, MLPClassifier, MMDInitializer, NetClassifier, Theta0
from sklearn_mmdinit.diagnostics import (
    NeighborAgreement,
    coherence_kernel,
    dead_neuron_ratio,
    degenerate_softmax_ratio,
    neighbor_agreement,
    prediction_samples,
)


def network(*layers, activation="relu"):
    """A theta0 of given (weights, biases), scikit-learn's orientation."""
    arrays = {}
    for i, (W, b) in enumerate(layers):
        arrays[f"linears.{i}.weight"] = np.asarray(W).T
        arrays[f"linears.{i}.bias"] = np.asarray(b)
    widths = [np.shape(layers[0][0])[0], *(len(b) for _, b in layers)]
    shape = widths[0], widths[1:-1], widths[-1], activation
    return Theta0(Architecture.of_perceptron(*shape), arrays)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(40, 3))


@pytest.fixture
def random_network():
    rng, widths = np.random.default_rng(1), [3, 6, 5, 4]
    return network(*((rng.normal(size=(a, b)), rng.normal(size=b)) for a, b in pairwise(widths)))


def fitted(X, **params):
    return MMDInitializer((6,), n_perturbations=4, max_iter=1, random_state=0, **params).fit(X)


# degenerate softmax


def test_a_class_that_always_wins_is_degenerate(X):
    own = {"n_batches": 4, "n_perturbations": 16, "random_state": 0}
    ratios = degenerate_softmax_ratio(network((np.zeros((3, 2)), [100, 0])), X, **own)
    np.testing.assert_array_equal(ratios, np.ones(4))
    two_of_three = network(([[100, -100, 0], [0, 0, 0], [0, 0, 0]], [0, 0, -900]))
    ratios = degenerate_softmax_ratio(two_of_three, X, batch_size=40, **own)
    np.testing.assert_array_equal(ratios, np.ones(4))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_network_that_uses_all_classes_is_not(hidden, X):
    X = np.vstack([X[:20], -X[:20]])  # with as many rows of either sign
    weights = [[100, -100], [0, 0], [0, 0]]
    theta0 = network((weights, [0, 0]))
    if hidden:
        theta0 = network((np.diag([1.0, 0, 0]), [10, 0, 0]), (weights, [-1000, 1000]))
    own = {"n_batches": 4, "perturbation_scale": 0.01, "random_state": 0}
    ratios = degenerate_softmax_ratio(theta0, X, batch_size=40, **own)
    np.testing.assert_array_equal(ratios, np.zeros(4))
    one_row = degenerate_softmax_ratio(theta0, X, batch_size=1, **own)
    np.testing.assert_array_equal(one_row, np.ones(4), err_msg="one row shows one class")


@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_the_ratio_of_pure_noise(scale):
    # theta0 = 0 and inputs +1, -1: the difference of the logits is +-e + b with e ~ N(0, 2 s^2)
    # and b ~ N(0, s^2), whose sign is the same for both inputs where |b| > |e|.
    theta0 = network((np.zeros((1, 2)), [0, 0]))
    own = {"n_perturbations": 2000, "n_batches": 5, "random_state": 0}
    ratios = degenerate_softmax_ratio(theta0, [[1.0], [-1.0]], perturbation_scale=scale, **own)
    assert len(set(ratios)) == 5, "each mini-batch has perturbations of its own"
    assert ratios.mean() == pytest.approx(2 / math.pi * math.atan(math.sqrt(0.5)), abs=0.02)


# dead neurons


def test_the_ratio_of_dead_neurons_is_exact(X):
    # Of four units one is dead by its bias, one by weights and bias 0; then two of two.
    first = (np.vstack([np.ones((1, 4)), np.zeros((2, 4))]) * [1, 1, 1, 0], [50, -50, 60, 0])
    second = (-np.ones((4, 2)), [0, -1])
    third = (np.zeros((2, 5)), [1, 1, -1, 1, 1])  # a dead layer; biases alone decide
    theta0 = network(first, second, third, (np.ones((5, 2)), [0, 0]))
    ratios = dead_neuron_ratio(theta0, X, n_batches=6, random_state=0)
    np.testing.assert_array_equal(ratios, np.tile([0.5, 1.0, 0.2], (6, 1)))


def test_a_unit_is_dead_only_if_it_is_for_every_row():
    theta0 = network((np.array([[1.0, -1.0]]), [0, 0]), (np.eye(2), [0, 0]))
    X = np.array([[1.0]] * 9 + [[-1.0]])
    all_rows = dead_neuron_ratio(theta0, X, batch_size=10, n_batches=3, random_state=0)
    np.testing.assert_array_equal(all_rows, np.zeros((3, 1)))
    one_row = dead_neuron_ratio(theta0, X, batch_size=1, n_batches=3, random_state=0)
    np.testing.assert_array_equal(one_row, np.full((3, 1), 0.5))
    # Without replacement: five of ten rows hold the last one half of the time.
    half = dead_neuron_ratio(theta0, X, batch_size=5, n_batches=400, random_state=0)
    assert set(half.ravel()) == {0.0, 0.5}
    assert (half == 0).mean() == pytest.approx(0.5, abs=0.1)


# predictions


@pytest.mark.parametrize("n_features", [2, 30])  # few and many for the number of rows
def test_a_network_is_the_same_for_all_rows(n_features):
    # Logits without hidden layers are affine in x for each network, but not over networks.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n_features))
    X = np.array([a, b, (a + b) / 2, 2 * b - a, a])
    theta0 = network((rng.normal(size=(n_features, 3)) / n_features, np.zeros(3)))
    P = prediction_samples(theta0, X, n_perturbations=200, random_state=0).astype(float)
    scores = np.log(P) - np.log(P[..., :1])
    np.testing.assert_allclose(scores[:, 2], (scores[:, 0] + scores[:, 1]) / 2, atol=2e-2)
    np.testing.assert_allclose(scores[:, 3], 2 * scores[:, 1] - scores[:, 0], atol=5e-2)
    assert scores[:, 0, 1].std() > 0.3


# what all have in common


FUNCTIONS = {
    "softmax": lambda s, X, **kw: degenerate_softmax_ratio(s, X, **({"n_batches": 9} | kw)),
    "dead": lambda s, X, **kw: dead_neuron_ratio(s, X, **({"n_batches": 9} | kw)),
    "predictions": prediction_samples,
}
each = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@each
def test_random_state_decides_all(function, X):
    rng = np.random.default_rng(0)
    theta0 = network((rng.normal(size=(3, 60)), np.full(60, -2.5)), (np.zeros((60, 2)), [0, 0]))
    first = function(theta0, X, random_state=5)
    np.testing.assert_array_equal(function(theta0, X, random_state=np.random.RandomState(5)), first)
    assert not np.array_equal(function(theta0, X, random_state=6), first)
    assert not np.array_equal(function(theta0, X), first)


@each
def test_sources_are_an_initializer_a_classifier_or_a_theta0(function, X):
    init = fitted(X, perturbation_scale=2.0)
    found = function(init, X, random_state=0)
    y, scale = np.arange(40) % 2, {"perturbation_scale": 2.0}  # an initializer's own
    if function is FUNCTIONS["dead"]:
        scale = {}
    else:
        assert not np.array_equal(function(init.theta0_, X, random_state=0), found)
    np.testing.assert_array_equal(function(init.theta0_, X, random_state=0, **scale), found)
    for start in (init, FrozenEstimator(init)):
        # A classifier is asked where it started, not where it ended.
        clf = MLPClassifier(warm_start_from=start, max_iter=2, random_state=0).fit(X, y)
        np.testing.assert_allclose(function(clf, X, random_state=0), found, atol=1e-6)
    # One that starts with a last layer of its own, and one of another module.
    with pytest.warns(UserWarning, match="a fresh last layer"):
        other = clf.set_params(max_iter=0).fit(X, np.arange(40) % 3)
    net = NetClassifier(MLP, module__n_features=X.shape[1], module__hidden_layer_sizes=(5,))
    net.set_params(max_iter=0).fit(X, np.arange(40) % 3)
    for own, params in ((other, scale), (net, {})):
        alone = function(own.theta0_, X, random_state=0, **params)
        np.testing.assert_allclose(function(own, X, random_state=0), alone, atol=1e-6)
    module = nn.Sequential(nn.Linear(X.shape[1], 5), nn.ReLU(), nn.Linear(5, 2))
    assert np.isfinite(function(NetClassifier(module, max_iter=0).fit(X, y), X)).all()


@each
@pytest.mark.parametrize("learned", [False, True])
def test_a_skip_connection_is_no_part_of_theta0(function, learned, X):
    start = fitted(X).theta0_ if learned else None
    clf = MLPClassifier((6,), warm_start_from=start, skip_connection=True, max_iter=1)
    clf.fit(X, np.arange(40) % 2)
    alone = function(clf.theta0_, X, random_state=0)
    np.testing.assert_array_equal(function(clf, X, random_state=0), alone)


def test_rows_are_checked_as_the_initializer_s_are(X, random_network):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    init = fitted(frame)
    for measure in (coherence_kernel, dead_neuron_ratio, prediction_samples):
        with pytest.raises(ValueError, match="feature names should match"):
            measure(init, frame[["c", "b", "a"]])
    kernel = coherence_kernel(init, frame)
    np.testing.assert_array_equal(kernel, coherence_kernel(init.theta0_, frame))
    np.testing.assert_allclose(np.diag(kernel), 1, rtol=1e-6)
    rows = torch.from_numpy(X).bfloat16().requires_grad_()
    np.testing.assert_allclose(coherence_kernel(init.theta0_, rows), kernel, atol=0.05)
    with pytest.raises(ValueError, match=r"activations of X reach .*e\+.*: give X on the scale"):
        coherence_kernel(random_network, X * 1e25)


def test_diagnostics_of_a_module():
    X, _ = digit_images(30)
    init = MMDInitializer(module=Conv, n_perturbations=4, max_iter=1, random_state=0).fit(X)
    still = prediction_samples(init, X, n_perturbations=2, perturbation_scale=0.0)
    expected = init.to_module().eval()(torch.from_numpy(X)).detach().softmax(-1)
    np.testing.assert_allclose(still, expected.expand(2, -1, -1), atol=1e-5)
    own = {"n_batches": 3, "random_state": 0}
    assert degenerate_softmax_ratio(init, X, n_perturbations=10, **own).shape == (3,)
    assert coherence_kernel(init, X[:5]).shape == (5, 5)


def test_few_labels_give_a_wide_interval_and_no_advice():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), np.where(np.arange(200) < 20, rng.integers(2, size=200), -1)
    found = neighbor_agreement(X, y, random_state=0)
    best = max(found.linear, found.most_frequent)
    assert found.interval[0] < min(0, found.neighbors - best), "the labels are chance"
    assert found.interval[1] > max(0, found.neighbors - best)
    assert "do not show whether coherence may help" in str(found)
    # A rule that is never wrong on ten labels may yet be wrong.
    lines = np.c_[np.arange(10.0), np.zeros(10)]
    found = neighbor_agreement(lines, np.arange(10) // 5, random_state=0)
    assert found.interval[1] - found.interval[0] > 0.3


@pytest.mark.parametrize(
    ("interval", "shown"),
    [((-0.003, 0.172), "-0.3 to +17 points"), ((0.0, 0.0004), "0 to +0.04 points")],
)
def test_an_end_of_the_interval_shows_its_sign_if_it_has_one(interval, shown):
    assert f" {shown} " in str(NeighborAgreement(0.8, 0.7, 0.1, 50, interval))


def test_neighbors_agree_where_classes_are_clusters_and_not_where_a_line_parts_them():
    rng = np.random.default_rng(0)
    # Sixteen clusters, of two classes as on a chessboard.
    cluster = rng.integers(4, size=(800, 2))
    some = np.where(np.arange(800) < 80, cluster.sum(axis=1) % 2, -1)
    found = neighbor_agreement(4.0 * cluster + rng.normal(0, 0.3, (800, 2)), some, random_state=0)
    assert found.neighbors > 0.95 > 0.65 > found.linear
    assert found.n_labels == 80
    assert str(found).endswith("Coherence may help.")
    assert 0.1 < found.interval[0] < found.neighbors - found.linear < found.interval[1]
    X = rng.normal(size=(800, 30))
    some = np.where(np.arange(800) < 80, X[:, 0] > 0, -1)
    found = neighbor_agreement(X, some, random_state=0)
    assert found.neighbors < found.linear
    assert "may not help" in str(found)
    named = np.array(["no", "yes"], dtype=object)[some]  # as a column of a table has them
    for nothing in (np.nan, None, pd.NA):
        named[some == -1] = nothing
        assert neighbor_agreement(X, named, random_state=0) == found
    known = some != -1  # names that are all known
    for mark in (-1, None):
        all_known = neighbor_agreement(
            X[known], named[known], unlabelled_label=mark, random_state=0
        )
        assert all_known.n_labels == 80
    with pytest.raises(TypeError, match=r"unlabelled_label=float\('nan'\)"):
        neighbor_agreement(X, named, unlabelled_label=pd.NA)
    kinds = np.arange(800) % 3 - 1  # None says that -1 is a class
    neighbor_agreement(X, kinds, unlabelled_label=None, random_state=0)
    with pytest.warns(UserWarning, match="-1 in y counts as a class; set unlabelled_label=-1"):
        neighbor_agreement(X, kinds, unlabelled_label=-9, random_state=0)


def test_a_row_that_no_walk_reaches_counts_as_the_most_frequent_class():
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]], 30, axis=0) + rng.normal(size=(90, 2))
    y = np.full(90, -1)
    y[[0, 1]], y[[30, 31, 32, 33, 34, 35, 60]] = 0, 1  # one label in the third group
    assert neighbor_agreement(X, y, unlabelled_label=-1, random_state=0).neighbors == 1.0
