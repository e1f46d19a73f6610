"""Numbers that float32 has no room for, wherever they come in."""

import numpy as np
import pytest
import scipy.sparse as sp

from sklearn_mmdinit import MLPClassifier, MMDInitializer, RandomLabelInitializer
from sklearn_mmdinit._compute import as_float32, check_float32

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_matrix])
def test_what_fits_is_rounded(kind):
    X = kind(np.array([[0.1, -LARGEST], [0.0, LARGEST]]))
    out = as_float32(X)
    assert out.dtype == np.float32
    dense = out.toarray() if sp.issparse(out) else out
    np.testing.assert_array_equal(dense, np.array([[0.1, -LARGEST], [0, LARGEST]], np.float32))
    assert as_float32(out) is out or np.shares_memory(as_float32(out).data, out.data)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, bool])
def test_other_numbers_always_fit(dtype):
    X = np.array([[0, 1], [1, 0]], dtype=dtype)
    np.testing.assert_array_equal(as_float32(X), X.astype(np.float32))


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("value", [1e39, -1e300, LARGEST * (1 + 1e-6)])
def test_what_does_not_fit_is_named(kind, value):
    X = np.ones((3, 2))
    X[1, 1] = value
    with pytest.raises(ValueError, match=f"X holds {value!r}".replace("+", r"\+")):
        check_float32(kind(X))


def test_nothing_and_the_infinite_are_not_its_business():
    check_float32(np.empty((0, 3)))
    check_float32(np.array([[np.inf, 1.0]]))


@pytest.mark.parametrize(
    "estimator",
    [
        MLPClassifier((3,), max_iter=1),
        MMDInitializer((3,), n_perturbations=4, max_iter=1),
        MMDInitializer((3,), n_perturbations=4, max_iter=1, coherence="auto"),
        RandomLabelInitializer((3,), max_iter=1, output="hidden"),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("method", ["fit", "partial_fit", "predict", "transform", "score"])
def test_every_method_names_it(estimator, method):
    X, y = np.random.default_rng(0).normal(size=(12, 4)), np.arange(12) % 2
    bad = X.copy()
    bad[7, 2] = -3e200
    function = getattr(estimator.fit(X, y), method, None)
    if function is None:
        assert method in ("predict", "transform")
        return
    arguments = () if method in ("predict", "transform") else (y,)
    if method == "transform" and estimator.output == "passthrough":
        np.testing.assert_array_equal(function(bad), bad)  # nothing is computed
        return
    # No warning comes before it: those are errors here.
    with pytest.raises(ValueError, match=r"X holds -3e\+200, a value"):
        function(bad, *arguments)
