"""Diagnostics of networks whose answers are known."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.frozen import FrozenEstimator

from sklearn_mmdinit import Architecture, MLPClassifier, MMDInitializer, Theta0
from sklearn_mmdinit.diagnostics import (
    coherence_kernel,
    dead_neuron_ratio,
    degenerate_softmax_ratio,
    prediction_samples,
)


def network(*layers, activation="relu"):
    """A theta0 of given (weights, biases), scikit-learn's orientation."""
    arrays = {}
    for i, (W, b) in enumerate(layers):
        arrays[f"linears.{i}.weight"] = np.asarray(W, dtype=np.float32).T
        arrays[f"linears.{i}.bias"] = np.asarray(b, dtype=np.float32)
    widths = [np.shape(layers[0][0])[0], *(len(b) for _, b in layers)]
    architecture = Architecture(widths[0], tuple(widths[1:-1]), widths[-1], activation)
    return Theta0(architecture, arrays)


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(40, 3))


@pytest.fixture
def random_network():
    rng = np.random.default_rng(1)
    widths = [3, 6, 5, 4]
    return network(*((rng.normal(size=(a, b)), rng.normal(size=b)) for a, b in pairwise(widths)))


# degenerate softmax


def test_a_class_that_always_wins_is_degenerate(X):
    theta0 = network((np.zeros((3, 2)), [100, 0]))
    ratios = degenerate_softmax_ratio(theta0, X, n_batches=4, n_perturbations=16, random_state=0)
    np.testing.assert_array_equal(ratios, np.ones(4))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_network_that_uses_all_classes_is_not(hidden, X):
    X = np.vstack([X[:20], -X[:20]])  # with as many rows of either sign
    last = ([[100, -100], [0, 0], [0, 0]], [0, 0])
    theta0 = (
        network(last)
        if not hidden
        else network((np.diag([1.0, 0, 0]), [10, 0, 0]), (last[0], [-1000, 1000]))
    )
    ratios = degenerate_softmax_ratio(
        theta0, X, n_batches=4, batch_size=40, perturbation_scale=0.01, random_state=0
    )
    np.testing.assert_array_equal(ratios, np.zeros(4))
    one_row = degenerate_softmax_ratio(theta0, X, n_batches=4, batch_size=1, random_state=0)
    np.testing.assert_array_equal(one_row, np.ones(4), err_msg="one row shows one class")


def test_two_of_three_classes_are_not_all(X):
    theta0 = network(([[100, -100, 0], [0, 0, 0], [0, 0, 0]], [0, 0, -900]))
    kwargs = {"n_batches": 3, "batch_size": 40, "n_perturbations": 8, "random_state": 0}
    np.testing.assert_array_equal(degenerate_softmax_ratio(theta0, X, **kwargs), np.ones(3))


@pytest.mark.parametrize("scale", [0.2, math.sqrt(0.5), 3.0])
def test_the_ratio_of_pure_noise(scale):
    # theta0 = 0 and inputs +1, -1: the difference of the logits is +-e + b with e ~ N(0, 2 s^2)
    # and b ~ N(0, s^2), whose sign is the same for both inputs where |b| > |e|.
    theta0 = network((np.zeros((1, 2)), [0, 0]))
    expected = 2 / math.pi * math.atan(math.sqrt(0.5))
    ratios = degenerate_softmax_ratio(
        theta0,
        [[1.0], [-1.0]],
        perturbation_scale=scale,
        n_perturbations=2000,
        n_batches=5,
        random_state=0,
    )
    assert len(set(ratios)) == 5, "each mini-batch has perturbations of its own"
    assert ratios.mean() == pytest.approx(expected, abs=0.02)


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


def test_no_hidden_layer_no_dead_neurons(X):
    assert dead_neuron_ratio(network((np.ones((3, 2)), [0, 0])), X, n_batches=4).shape == (4, 0)


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_only_relu_dies(activation, X):
    theta0 = network((np.ones((3, 2)), [0, 0]), (np.ones((2, 2)), [0, 0]), activation=activation)
    with pytest.raises(ValueError, match=f"activation='relu', got '{activation}'"):
        dead_neuron_ratio(theta0, X)


# predictions


def test_predictions_lie_on_the_simplex(random_network, X):
    P = prediction_samples(random_network, X, n_perturbations=50, random_state=0)
    assert P.shape == (50, 40, 4)
    assert P.dtype == np.float32
    assert P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=-1), 1, atol=1e-5)
    assert len(np.unique(P[:, 0, 0])) > 40, "the networks differ"


@pytest.mark.parametrize("n_features", [2, 30])  # few and many for the number of rows
def test_a_network_is_the_same_for_all_rows(n_features):
    # Logits without hidden layers are affine in x for each network, but not over networks.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, n_features))
    X = np.array([a, b, (a + b) / 2, 2 * b - a, a])
    theta0 = network((rng.normal(size=(n_features, 3)) / n_features, np.zeros(3)))
    P = prediction_samples(theta0, X, n_perturbations=200, random_state=0).astype(float)
    np.testing.assert_allclose(P[:, 0], P[:, 4], atol=1e-5, err_msg="equal rows")
    scores = np.log(P) - np.log(P[..., :1])
    np.testing.assert_allclose(scores[:, 2], (scores[:, 0] + scores[:, 1]) / 2, atol=5e-3)
    np.testing.assert_allclose(scores[:, 3], 2 * scores[:, 1] - scores[:, 0], atol=2e-2)
    assert scores[:, 0, 1].std() > 0.3


def test_equal_rows_get_equal_predictions_in_a_deep_network(random_network, X):
    P = prediction_samples(random_network, np.vstack([X, X]), n_perturbations=20, random_state=0)
    np.testing.assert_allclose(P[:, :40], P[:, 40:], atol=1e-3)


def test_without_perturbation_all_are_theta0(random_network, X):
    P = prediction_samples(random_network, X, n_perturbations=3, perturbation_scale=0)
    H = np.maximum(X @ random_network.coefs[0] + random_network.intercepts[0], 0)
    H = np.maximum(H @ random_network.coefs[1] + random_network.intercepts[1], 0)
    logits = H @ random_network.coefs[2] + random_network.intercepts[2]
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(P, np.broadcast_to(expected, P.shape), atol=1e-5)


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
    np.testing.assert_array_equal(function(theta0, X, random_state=5), first)
    np.testing.assert_array_equal(function(theta0, X, random_state=np.random.RandomState(5)), first)
    assert not np.array_equal(function(theta0, X, random_state=6), first)
    assert not np.array_equal(function(theta0, X), first)


@each
def test_sources_are_an_initializer_a_classifier_or_a_theta0(function, X):
    init = MMDInitializer(
        (6,), n_perturbations=4, max_iter=1, perturbation_scale=2.0, random_state=0
    ).fit(X)
    found = function(init, X, random_state=0)
    # A classifier is asked where it started, not where it ended.
    clf = MLPClassifier(warm_start_from=init, max_iter=2, random_state=0)
    clf.fit(X, np.arange(40) % 2)
    if function is FUNCTIONS["dead"]:
        scale = {}
    else:  # the scale of an initializer is its own
        scale = {"perturbation_scale": 2.0}
        assert not np.array_equal(function(init.theta0_, X, random_state=0), found)
    for source in (init.theta0_, clf):
        np.testing.assert_array_equal(function(source, X, random_state=0, **scale), found)


@each
def test_batch_normalisation_looks_at_the_mini_batch(function, X):
    init = MMDInitializer((6,), n_perturbations=4, max_iter=1, batch_norm=True, random_state=0)
    found = function(init.fit(X), X, random_state=0)
    # Its own statistics, not the running ones, take out any shift and scale of the inputs.
    np.testing.assert_allclose(function(init, 5 * X - 3, random_state=0), found, atol=1e-3)


def test_batch_normalisation_keeps_units_alive(X):
    init = MMDInitializer((6,), n_perturbations=4, max_iter=1, batch_norm=True, random_state=0)
    assert not dead_neuron_ratio(init.fit(X), X - 1000, n_batches=4, random_state=0).any()


@each
@pytest.mark.parametrize("source", [None, "theta0", MMDInitializer(), np.zeros(3)])
def test_other_sources_are_refused(function, source, X):
    with pytest.raises(ValueError, match="expected a Theta0 or a fitted estimator"):
        function(source, X)


@each
def test_bad_data_is_refused(function, X):
    theta0 = network((np.zeros((3, 2)), [0, 0]))
    for bad, message in [
        (X[:, :2], "X has 2 features, theta0 expects 3"),
        (X[0], "Expected 2D array"),
        (np.full((4, 3), np.nan), "contains NaN"),
        (np.ones((0, 3)), r"0 sample\(s\)"),
        ([["a", "b", "c"]], "could not convert string to float"),
    ]:
        with pytest.raises(ValueError, match=message):
            function(theta0, bad)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (degenerate_softmax_ratio, "n_perturbations"),
        (degenerate_softmax_ratio, "n_batches"),
        (degenerate_softmax_ratio, "batch_size"),
        (dead_neuron_ratio, "n_batches"),
        (dead_neuron_ratio, "batch_size"),
        (prediction_samples, "n_perturbations"),
    ],
)
def test_counts_are_positive_integers(function, name, random_network, X):
    with pytest.raises(ValueError, match=f"{name} == 0, must be >= 1"):
        function(random_network, X, **{name: 0})
    with pytest.raises(TypeError, match=f"{name} must be an instance of int, not float"):
        function(random_network, X, **{name: 2.5})


@pytest.mark.parametrize("function", [degenerate_softmax_ratio, prediction_samples])
def test_scales_are_finite(function, random_network, X):
    for scale in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"perturbation_scale must be .* got {scale}"):
            function(random_network, X, perturbation_scale=scale)
    with pytest.raises(TypeError, match="perturbation_scale must be an instance of"):
        function(random_network, X, perturbation_scale="1")


@pytest.mark.parametrize("frozen", [False, True])
def test_perturbations_around_a_classifier_are_as_large_as_its_initializer_s(X, frozen):
    init = MMDInitializer((6,), perturbation_scale=0.01, max_iter=1, random_state=0).fit(X)
    y = (X[:, 0] > 0).astype(int)
    start = FrozenEstimator(init) if frozen else init
    clf = MLPClassifier(warm_start_from=start, max_iter=0).fit(X, y)
    own, found = (prediction_samples(source, X[:3], random_state=0) for source in (init, clf))
    np.testing.assert_allclose(found, own, atol=1e-6)
    fresh = MLPClassifier((6,), max_iter=0, random_state=0).fit(X, y)
    default = prediction_samples(fresh, X[:3], random_state=0)
    named = prediction_samples(fresh, X[:3], perturbation_scale=math.sqrt(0.5), random_state=0)
    np.testing.assert_array_equal(default, named)


def test_rows_are_checked_as_the_initializer_s_are():
    X = np.random.default_rng(0).normal(size=(16, 5))
    init = MMDInitializer(
        (4,), batch_norm=True, n_perturbations=2, batch_size=8, max_iter=1, random_state=0
    ).fit(X)
    with pytest.raises(ValueError, match="too large for float32"):
        prediction_samples(init, X * 1e60)
    rows = torch.from_numpy(X).bfloat16().requires_grad_()
    assert coherence_kernel(init, rows).shape == (16, 16)
    with pytest.raises(ValueError, match=r"at least 2 rows.*batch_size=1"):
        dead_neuron_ratio(init, X, batch_size=1)


def test_columns_in_another_order_are_refused(X):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    init = MMDInitializer((4,), n_perturbations=4, max_iter=1, random_state=0).fit(frame)
    turned = frame[["c", "b", "a"]]
    for measure in (coherence_kernel, dead_neuron_ratio, prediction_samples):
        with pytest.raises(ValueError, match="feature names should match"):
            measure(init, turned)
    np.testing.assert_array_equal(
        coherence_kernel(init, frame), coherence_kernel(init.theta0_, frame)
    )


def test_activations_whose_products_float32_does_not_hold_are_named(X, random_network):
    with pytest.raises(ValueError, match=r"activations of X reach .*e\+.*: give X on the scale"):
        coherence_kernel(random_network, X * 1e25)
