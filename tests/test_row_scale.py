"""A theta0 knows the scale of its rows, and rows on another scale have a warning."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler, normalize

from nets import assert_same_arrays
from sklearn_mmdinit import MLPClassifier, MMDInitializer, Theta0
from sklearn_mmdinit._base.validation import unit_rows

PIXELS, y = load_digits().data / 16, load_digits().target
STANDARDISED = StandardScaler().fit_transform(PIXELS)
FEW = np.random.default_rng(0).permutation(len(y))[:50]


def initializer(**params):
    defaults = {"n_classes": 10, "max_iter": 0, "n_perturbations": 4, "random_state": 0}
    network = {} if "module" in params else {"hidden_layer_sizes": (8,)}
    return MMDInitializer(**network | defaults | params)


def fit(theta0, X, labels=y[FEW], classifier=MLPClassifier):
    return classifier(warm_start_from=theta0, max_iter=0, random_state=0).fit(X, labels)


@pytest.fixture(scope="module")
def of_pixels():
    return initializer().fit(PIXELS)


@pytest.mark.parametrize("both", [(PIXELS, STANDARDISED), (STANDARDISED, PIXELS)])
def test_two_scales_have_a_warning_and_one_has_none(both):
    for learned in both:
        init = initializer().fit(learned)
        for used in both:
            for call in (
                lambda init=init, used=used: fit(init, used[FEW]),
                lambda init=init, used=used: fit(init.theta0_, csr_array(used[FEW])),
                lambda init=init, used=used: init.transform(used[FEW]),
            ):
                if used is learned:
                    call()  # warnings are errors
                    continue
                with pytest.warns(UserWarning, match=r"another scale .* preprocessing once"):
                    call()
        with pytest.warns(UserWarning, match="another scale"):
            init.set_params(warm_start=True).fit(both[learned is both[0]])


def test_the_scale_is_that_of_all_rows_and_goes_where_theta0_goes(of_pixels, tmp_path):
    theta0 = of_pixels.theta0_
    np.testing.assert_allclose(theta0.row_mean, PIXELS.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(theta0.row_spread, PIXELS.std(axis=0), atol=1e-6)
    theta0.save(path := tmp_path / "theta0.safetensors")
    for kept in (Theta0.load(path), pickle.loads(pickle.dumps(theta0))):
        np.testing.assert_array_equal(kept.row_mean, theta0.row_mean)
        np.testing.assert_array_equal(kept.row_spread, theta0.row_spread)
    assert Theta0.load(path).arrays.keys() == theta0.arrays.keys()
    replace(theta0, row_mean=None, row_spread=None).save(path)
    assert Theta0.load(path).row_mean is None
    assert_same_arrays(Theta0.load(path), theta0)
    fit(path, 100 * STANDARDISED[FEW] / 16)


def test_the_scale_of_many_rows_is_exact_far_from_0_and_0_for_a_constant():
    rows = np.random.default_rng(0).normal(5.0, 0.1, size=(3000, 400))  # more than a block
    rows[:, 0], rows[0, 1] = 0.1, 100.0
    theta0 = initializer(n_classes=2).fit(rows).theta0_
    np.testing.assert_allclose(theta0.row_mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(theta0.row_spread[1:], rows.std(axis=0)[1:], rtol=1e-5)
    assert theta0.row_spread[0] == 0.0


def columns(law, n, rng):
    """Rows of a law: few or many columns, which may be rare, sparse or heavy-tailed."""
    if law == "one normal":
        return rng.normal(size=(n, 1))
    if law == "log-normal":
        return np.exp(rng.normal(size=(n, 12)))
    if law == "one-hot":
        return np.eye(30)[rng.choice(30, n, p=np.arange(1, 31) / 465)]
    words = (rng.random((n, 200)) < 1 / np.arange(2, 202)) * rng.random((n, 200))
    return words / np.linalg.norm(words, axis=1, keepdims=True).clip(1e-9)


@pytest.mark.parametrize("law", ["one normal", "log-normal", "one-hot", "words"])
def test_few_rows_or_columns_give_no_false_alarm(law):
    rng = np.random.default_rng(0)
    X = columns(law, 1000, rng)
    init = initializer(n_classes=2).fit(X)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "X is on another scale")
        for _ in range(100):
            init.transform(X[rng.choice(len(X), 10, replace=False)])
        for n in range(1, 5):
            init.transform(50 * X[:n])  # too few to tell


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_row_gets_unit_norm_but_for_zeros(dtype):
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [3e30, -4e30]], dtype)
    scaled = unit_rows(rows)
    assert scaled.dtype == dtype
    np.testing.assert_allclose(scaled, [[0.6, 0.8], [0, 0], [1, 0], [0.6, -0.8]], rtol=1e-6)
    X = np.random.default_rng(0).normal(size=(50, 7)).astype(dtype)
    np.testing.assert_array_equal(unit_rows(X), normalize(X))
