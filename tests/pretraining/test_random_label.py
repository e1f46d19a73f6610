"""RandomLabelInitializer: cross entropy with labels drawn anew for every mini-batch."""

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from sklearn_mmdinit import MLPClassifier, RandomLabelInitializer
from sklearn_mmdinit._compute import StepRandom, permutation

BATCH, STEPS = 16, 5
# So small that float32 weights of ordinary size stay what they are.
STILL = 1e-12


@pytest.fixture(scope="module")
def X():
    return StandardScaler().fit_transform(load_digits().data[: BATCH * STEPS])


def tiny(**params):
    defaults = {"hidden_layer_sizes": (12, 8), "batch_size": BATCH, "max_iter": 1}
    defaults |= {"window": STEPS, "random_state": 0}
    return RandomLabelInitializer(**{**defaults, **params})


def batches(init, X):
    """The mini-batches of the first pass."""
    order = permutation(init._state.seed, 0, len(X))
    return X[order].reshape(-1, BATCH, X.shape[1])


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_loss_is_the_cross_entropy_with_the_labels_of_each_step(n_classes, X):
    init = tiny(n_classes=n_classes, learning_rate_init=STILL, window=1).fit(X)
    random = StepRandom(init._state.seed)
    for step, (batch, loss) in enumerate(zip(batches(init, X), init.loss_curve_, strict=True)):
        H = batch
        for W, b in zip(init.coefs_[:-1], init.intercepts_[:-1], strict=True):
            H = np.maximum(H @ W + b, 0)
        log_p = log_softmax(H @ init.coefs_[-1] + init.intercepts_[-1], axis=1)
        labels = random.at(step).labels(BATCH, n_classes).numpy()
        assert loss == pytest.approx(-log_p[np.arange(BATCH), labels].mean(), rel=1e-4)


def test_running_statistics_are_those_of_the_mini_batches_and_part_of_theta0(X):
    init = tiny(batch_norm=True, learning_rate_init=STILL).fit(X)
    mean, var = np.zeros(12), np.ones(12)
    for batch in batches(init, X):
        H = batch @ init.coefs_[0] + init.intercepts_[0]
        mean = 0.9 * mean + 0.1 * H.mean(axis=0)
        var = 0.9 * var + 0.1 * H.var(axis=0, ddof=1)
    arrays = init.theta0_.arrays
    np.testing.assert_allclose(arrays["norms.0.running_mean"], mean, atol=1e-5)
    np.testing.assert_allclose(arrays["norms.0.running_var"], var, rtol=1e-4)
    assert arrays["norms.1.running_mean"].any()
    start = tiny(batch_norm=True, max_iter=0).fit(X).theta0_.arrays
    assert not start["norms.0.running_mean"].any()
    assert (start["norms.0.running_var"] == 1).all()


@pytest.mark.parametrize("batch_norm", [False, True])
def test_labels_drawn_anew_cannot_be_learned_by_heart(batch_norm, X):
    init = tiny(batch_norm=batch_norm, max_iter=40, learning_rate_init=3e-3).fit(X)
    # The best guess is 1/2 whatever X is; labels that stayed would be at 0 by now.
    assert np.mean(init.loss_curve_[:5]) > np.log(2)
    assert np.mean(init.loss_curve_[-20:]) == pytest.approx(np.log(2), abs=0.1)
    assert init.best_loss_ > 0.6


@pytest.mark.parametrize("batch_norm", [False, True])
def test_it_learns_to_guess_and_scores_so(batch_norm, X):
    init = tiny(batch_norm=batch_norm, max_iter=40, learning_rate_init=3e-3).fit(X)
    start = tiny(batch_norm=batch_norm, max_iter=0).fit(X)
    assert init.score(X) > start.score(X)
    assert -1.0 < init.score(X) < -0.6


def test_batch_normalisation_reaches_theta0(X):
    plain, normed = tiny().fit(X).theta0_, tiny(batch_norm=True).fit(X).theta0_
    assert not any(name.startswith("norms") for name in plain.arrays)
    assert normed.architecture.batch_norm
    for name in ("weight", "bias", "running_mean", "running_var"):
        assert normed.arrays[f"norms.1.{name}"].shape == (8,)
    # Scale and shift are learned, not only kept.
    assert (normed.arrays["norms.0.weight"] != 1).all()
    assert (normed.arrays["norms.0.bias"] != 0).any()


def test_a_classifier_starts_from_its_running_statistics(X):
    init = tiny(batch_norm=True).fit(X)
    clf = MLPClassifier(warm_start_from=init, max_iter=0).fit(X, np.arange(len(X)) % 2)
    for name, array in init.theta0_.arrays.items():
        np.testing.assert_array_equal(clf.theta0_.arrays[name], array)
    H = init.set_params(output="hidden").transform(X)
    logits = H @ init.coefs_[-1] + init.intercepts_[-1]
    np.testing.assert_allclose(np.log(clf.predict_proba(X)), log_softmax(logits, axis=1), atol=1e-4)
