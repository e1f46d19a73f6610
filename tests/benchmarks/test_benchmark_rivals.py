"""The mathematics of the rivals: what each start, noise and round of pseudo-labels must satisfy."""

import io

import joblib
import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.dummy import DummyClassifier
from sklearn.semi_supervised import LabelSpreading

from data.datasets import load_digits_dataset, standardize
from protocol.methods import LastRowsSplit
from rivals.augmented import AugmentedClassifier
from rivals.autoencoder import DenoisingAutoencoder
from rivals.corruption import CORRUPTIONS, gaussian, masking
from rivals.fresh import fresh_arrays, n_layers, weight_name
from rivals.label_spreading import GraphLabelSpreading, nearest_pool_rows, normalized_graph
from rivals.lsuv import lsuv_arrays, orthonormal
from rivals.pca_layer import components_of, with_components
from rivals.self_training import SelfTrainedNetwork
from sklearn_mmdinit import MLPClassifier


@pytest.fixture(scope="module")
def digits():
    """The training images of the small digits, scaled."""
    return standardize(load_digits_dataset())[0]


def outputs(arrays, X):
    """What each layer gives on rows X before its activation."""
    found = []
    for layer in range(n_layers(arrays)):
        found.append(X @ arrays[weight_name(layer)].T + arrays[f"linears.{layer}.bias"])
        X = np.maximum(found[-1], 0.0)
    return found


# Changed copies of labelled rows


@pytest.mark.parametrize("n_copies", [0, 1, 4])
def test_copies_of_a_row_stand_beside_it_under_its_label(n_copies):
    X, y = np.arange(12.0)[:, None] * 100, np.arange(12) % 3
    seen = {}

    class Spy(DummyClassifier):
        def fit(self, X, y):
            seen.update(X=X, y=y)
            return super().fit(X, y)

    def change(rows, rng):
        return rows + rng.uniform(1.0, 2.0, rows.shape)

    clf = AugmentedClassifier(Spy(strategy="most_frequent"), change, n_copies).fit(X, y)
    rows, each = seen["X"].reshape(12, 1 + n_copies), 1 + n_copies
    np.testing.assert_array_equal(rows[:, 0], X[:, 0])
    np.testing.assert_array_equal(np.round(rows / 100.0), np.repeat(X / 100.0, each, axis=1))
    assert len(np.unique(rows)) == rows.size
    np.testing.assert_array_equal(seen["y"].reshape(12, each), np.repeat(y[:, None], each, axis=1))
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.predict(X).tolist() == [0] * 12
    ((train, validation),) = LastRowsSplit().split(seen["X"])
    assert set(np.round(seen["X"][validation] / 100.0).ravel()) == {10.0, 11.0}
    assert len(train) + len(validation) == rows.size


# Fresh weights


@pytest.mark.parametrize("classes", [range(2), ["a", "b", "c"]])
def test_fresh_arrays_are_those_that_a_fit_starts_from(classes):
    X = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    y = np.resize(np.asarray(classes), 12)
    network = MLPClassifier((7, 3), warm_start_from=None, max_iter=2, random_state=5)
    started = network.fit(X, y).theta0_.arrays
    fresh = fresh_arrays(network, 5, classes)
    assert fresh.keys() == started.keys()
    assert all(np.array_equal(fresh[name], started[name]) for name in fresh)
    assert network.max_iter == 2


# LSUV


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (6, 4)])
def test_orthonormal_weights_are_orthonormal(shape):
    for seed in range(5):
        weight = orthonormal(*shape, np.random.default_rng(seed))
        assert weight.shape == shape
        gram = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
        np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-12)


def test_orthonormal_weights_are_uniform():
    rng = np.random.default_rng(0)
    corners = np.array([orthonormal(2, 2, rng)[0, 0] for _ in range(2000)])
    # The cosine of a uniform angle: mean 0, mean square 1/2. QR alone has one sign.
    assert abs(corners.mean()) < 5 * np.sqrt(0.5 / 2000)
    assert (corners**2).mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 8 / 2000))


@pytest.mark.parametrize("widths", [(64, 32, 16, 2), (64, 100, 10), (64, 3)])
@pytest.mark.parametrize("seed", [0, 1])
def test_lsuv_gives_every_layer_variance_one_on_its_mini_batch(digits, widths, seed):
    rows = digits[:200]
    arrays = lsuv_arrays(rows, widths, np.random.default_rng(seed), batch_size=200)
    for layer, output in enumerate(outputs(arrays, rows)):
        assert output.shape == (200, widths[layer + 1])
        assert output.var() == pytest.approx(1.0, rel=1e-4)
    for layer in range(len(widths) - 1):
        weight = arrays[weight_name(layer)]
        gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(len(gram)), atol=1e-3 * gram[0, 0])
        assert not arrays[f"linears.{layer}.bias"].any()


def test_lsuv_does_not_care_for_the_scale_of_the_rows(digits):
    small, large = (
        lsuv_arrays(scale * digits, (64, 8, 2), np.random.default_rng(0), batch_size=50)
        for scale in (1.0, 100.0)
    )
    np.testing.assert_allclose(small["linears.0.weight"], 100 * large["linears.0.weight"], 1e-5)
    np.testing.assert_allclose(small["linears.1.weight"], large["linears.1.weight"], 1e-5)


def test_lsuv_takes_all_rows_where_there_are_fewer_and_refuses_rows_of_zeros(digits):
    rng = np.random.default_rng
    few = lsuv_arrays(digits[:20], (64, 4, 2), rng(0), batch_size=1000)
    assert outputs(few, digits[:20])[0].var() == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(ValueError, match="outputs of layer 0 do not vary on 30 rows"):
        lsuv_arrays(np.zeros((30, 64)), (64, 4, 2), rng(0))


# A layer of principal components


def fresh_network(*widths):
    network = MLPClassifier(widths[1:-1], warm_start_from=None, random_state=0)
    return fresh_arrays(network, widths[0], range(widths[-1]))


@pytest.mark.parametrize("width", [10, 11])
def test_pairs_of_units_are_the_leading_components_and_their_negatives(digits, width):
    fresh = fresh_network(64, width, 5, 2)
    components = components_of(digits, width)
    assert len(components) == (width + 1) // 2
    np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-5)
    output = outputs(with_components(fresh, components), digits.astype(np.float64))[0]
    positive, negative = output[:, 0::2], output[:, 1::2]
    np.testing.assert_allclose(positive[:, : width // 2], -negative, atol=1e-4)
    # Components of falling variance, uncorrelated with each other.
    covariance = np.cov(positive.T)
    variances = np.diag(covariance)
    assert np.all(np.diff(variances) < 0)
    np.testing.assert_allclose(covariance, np.diag(variances), atol=1e-3 * variances[0])
    # The two of a pair keep all of it after ReLU.
    pairs = np.maximum(output, 0.0)[:, : 2 * (width // 2)]
    kept = pairs[:, 0::2] - pairs[:, 1::2]
    np.testing.assert_allclose(kept, positive[:, : width // 2], atol=1e-4)


def test_no_other_directions_of_their_number_hold_more_variance(digits):
    components = components_of(digits, 10)
    kept = np.var(digits @ components.T, axis=0).sum()
    for seed in range(5):
        other = orthonormal(5, 64, np.random.default_rng(seed))
        assert np.var(digits @ other.T, axis=0).sum() < kept


def test_the_layer_has_the_variance_of_fresh_weights_and_the_rest_is_fresh(digits):
    fresh = fresh_network(64, 10, 5, 2)
    arrays = with_components(fresh, components_of(digits, 10))
    own, drawn = (a["linears.0.weight"] for a in (arrays, fresh))
    assert np.mean(own**2) == pytest.approx(np.mean(drawn**2), rel=1e-5)
    norms = np.linalg.norm(own, axis=1)
    np.testing.assert_allclose(norms, norms[0], rtol=1e-5)
    assert arrays.keys() == fresh.keys()
    for name in arrays.keys() - {"linears.0.weight"}:
        assert np.array_equal(arrays[name], fresh[name])


def test_units_beyond_the_components_stay_fresh(digits):
    fresh = fresh_network(64, 140, 2)
    arrays = with_components(fresh, components_of(digits, 140))
    own, drawn = (a["linears.0.weight"] for a in (arrays, fresh))
    assert np.array_equal(own[128:], drawn[128:])
    assert not np.array_equal(own[:128], drawn[:128])


# The denoising autoencoder


def test_masking_puts_a_share_of_the_entries_to_zero_and_leaves_the_rest():
    X = torch.ones(200, 50)
    noisy = masking(X, 0.3, torch.Generator().manual_seed(0))
    assert set(noisy.unique().tolist()) == {0.0, 1.0}
    assert float((noisy == 0).float().mean()) == pytest.approx(0.3, abs=5 * 0.46 / 100)


def test_gaussian_noise_has_its_standard_deviation_and_mean_zero():
    X = torch.full((200, 50), 3.0)
    noise = gaussian(X, 0.5, torch.Generator().manual_seed(0)) - X
    assert float(noise.mean()) == pytest.approx(0.0, abs=5 * 0.5 / 100)
    assert float(noise.std()) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_at_level_zero_nothing_is_corrupted(name):
    X = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(CORRUPTIONS[name](X, 0.0, torch.Generator().manual_seed(1)), X)


SMALL = {
    "hidden_layer_sizes": (24, 12),
    "max_iter": 4,
    "batch_size": 32,
    "learning_rate_init": 3e-3,
    "corruption_level": 0.5,
}


@pytest.fixture(scope="module")
def encoder(digits):
    return DenoisingAutoencoder(**SMALL).fit(digits)


def test_the_autoencoder_learns_to_undo_noise(encoder, digits):
    # The best that knows nothing of a row is the mean of each pixel.
    assert encoder.n_iter_ == 4
    assert encoder.best_loss_ < 0.9 * digits.var(axis=0).mean()
    assert encoder.loss_curve_ == sorted(encoder.loss_curve_, reverse=True)


def test_theta0_is_its_encoder_with_a_fresh_last_layer(encoder, digits):
    chain = encoder._state[0][0]
    hidden = chain(torch.from_numpy(digits[:20])).detach().numpy()
    arrays = encoder.theta0_.arrays
    own = np.maximum(outputs(arrays, digits[:20])[-2], 0.0)
    np.testing.assert_allclose(own, hidden, rtol=1e-4, atol=1e-5)
    fresh = fresh_network(64, 24, 12, 2)
    assert np.array_equal(arrays["linears.2.weight"], fresh["linears.2.weight"])
    assert not np.array_equal(arrays["linears.0.weight"], fresh["linears.0.weight"])
    network = MLPClassifier(warm_start_from=arrays, max_iter=0, validation_split=None)
    assert network.fit(digits[:4], [0, 1, 0, 1]).theta0_.architecture.widths == (64, 24, 12, 2)


def test_passes_one_by_one_and_from_disk_are_those_of_fit(encoder, digits):
    other = DenoisingAutoencoder(**SMALL)
    for _ in range(2):
        other.partial_fit(digits)
    file = io.BytesIO()
    joblib.dump(other, file)
    file.seek(0)
    resumed = joblib.load(file)
    for _ in range(2):
        resumed.partial_fit(digits)
    assert resumed.loss_curve_ == encoder.loss_curve_
    for name, array in encoder.theta0_.arrays.items():
        assert np.array_equal(resumed.theta0_.arrays[name], array)


def test_a_pass_that_is_cut_short_leaves_no_trace(encoder, digits, monkeypatch):
    other = DenoisingAutoencoder(**SMALL).partial_fit(digits)
    step, steps = torch.optim.Adam.step, []

    def interrupted(self, *args, **kwargs):
        if len(steps) == 7:
            raise KeyboardInterrupt
        steps.append(None)
        return step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.Adam, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.partial_fit(digits)
    assert other.n_iter_ == 1
    for _ in range(3):
        other.partial_fit(digits)
    assert other.loss_curve_ == encoder.loss_curve_


def test_another_seed_learns_another_encoder(encoder, digits):
    other = DenoisingAutoencoder(**SMALL, random_state=1).partial_fit(digits)
    assert other.loss_curve_[0] != encoder.loss_curve_[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruption": "salt"}, r"must be one of \['gaussian', 'masking'\], got 'salt'"),
        ({"learning_rate_init": 1e30}, "the loss of pass 0 is .*lower learning_rate_init=1e"),
    ],
)
def test_an_autoencoder_that_cannot_learn_says_why(digits, changes, message):
    with pytest.raises(ValueError, match=message):
        DenoisingAutoencoder(**SMALL | changes).fit(digits)


# Self-training


def network(**more):
    return MLPClassifier(
        (8,), warm_start_from=None, learning_rate_init=0.05, random_state=0, **more
    )


@pytest.fixture
def blobs():
    """Two clouds: twelve labelled rows of them, and two hundred without."""
    X, y = make_blobs(212, centers=[[-2.0, 0.0], [2.0, 0.0]], random_state=0)
    return X[:12].astype(np.float32), y[:12], X[12:].astype(np.float32), y[12:]


@pytest.mark.parametrize("split", [None, LastRowsSplit()])
def test_without_rounds_self_training_is_the_network_itself(blobs, split):
    X, y, X_unlabelled, _ = blobs
    own = SelfTrainedNetwork(network(validation_split=split), X_unlabelled, max_iter=0).fit(X, y)
    alone = network(validation_split=split).fit(X, y)
    assert np.array_equal(own.predict(X_unlabelled), alone.predict(X_unlabelled))
    probabilities = own.model_.predict_proba(X_unlabelled)
    assert np.array_equal(probabilities, alone.predict_proba(X_unlabelled))


def test_rounds_label_what_the_network_is_sure_of(blobs):
    X, y, X_unlabelled, y_unlabelled = blobs
    sure = SelfTrainedNetwork(network(validation_split=None), X_unlabelled, threshold=0.7)
    rounds = sure.fit(X, y).model_.labeled_iter_
    assert np.all(rounds[:12] == 0)
    assert np.sum(rounds[12:] == 1) > 0
    assert rounds.max() <= 3
    assert np.mean(sure.predict(X_unlabelled) == y_unlabelled) > 0.9
    never = SelfTrainedNetwork(network(validation_split=None), X_unlabelled, threshold=1 - 1e-9)
    assert np.all(never.fit(X, y).model_.labeled_iter_[12:] == -1)


def test_pseudo_labels_never_choose_the_epoch(blobs, monkeypatch):
    X, y, X_unlabelled, _ = blobs
    seen = []
    fit = MLPClassifier.fit

    def spy(self, X, y):
        seen.append((len(X), self.validation_split))
        return fit(self, X, y)

    monkeypatch.setattr(MLPClassifier, "fit", spy)
    split = LastRowsSplit()
    SelfTrainedNetwork(network(validation_split=split), X_unlabelled, threshold=0.7).fit(X, y)
    assert seen[0][0] == 10
    assert seen[-1][0] > 10
    for _, (X_valid, y_valid) in seen:
        assert np.array_equal(X_valid, X[10:])
        assert np.array_equal(y_valid, y[10:])


def test_the_label_that_means_none_is_refused(blobs):
    X, _, X_unlabelled, _ = blobs
    with pytest.raises(ValueError, match="y holds the label -1"):
        SelfTrainedNetwork(network(), X_unlabelled).fit(X, np.resize([-1, 1], 12))


# Label spreading


def test_spreading_agrees_with_scikit_learn_on_the_same_graph(digits):
    n, k = 300, 7
    pool = digits[:n].astype(np.float64)
    neighbors = nearest_pool_rows(digits[:400].astype(np.float64), n, k, 1)
    assert not np.any(neighbors[:n] == np.arange(n)[:, None])  # no row is its own neighbour
    spread = normalized_graph(neighbors[:n])
    labels = load_digits_dataset().y_train[:n]
    marked = np.where(np.arange(n) < 60, labels, -1)
    ours = GraphLabelSpreading(spread, neighbors, alpha=0.5, n_iter=200)
    ours.fit(np.arange(60)[:, None], labels[:60])
    graph = np.zeros((n, n))
    np.add.at(graph, (np.repeat(np.arange(n), k), neighbors[:n].ravel()), 1.0)
    graph = graph + graph.T
    theirs = LabelSpreading(kernel=lambda A, B: graph, alpha=0.5, max_iter=200, tol=0.0)
    with pytest.warns(match="max_iter=200 was reached"):
        theirs.fit(pool, marked)
    np.testing.assert_allclose(
        ours.label_distributions_, theirs.label_distributions_, rtol=1e-6, atol=1e-9
    )
