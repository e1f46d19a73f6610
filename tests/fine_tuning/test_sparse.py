"""Sparse X: the same numbers as dense, and never dense as a whole."""

import numpy as np
import pytest
import scipy.sparse as sp
from torch.utils.data import DataLoader

from nets import assert_same_weights, digits
from sklearn_mmdinit import MLPClassifier


@pytest.fixture(scope="module")
def data():
    return digits(100, 3)


def small(**params):
    own = {"hidden_layer_sizes": (8,), "max_iter": 2, "batch_size": 15, "random_state": 0}
    return MLPClassifier(**{**own, **params})


def assert_same(a, b, X):
    assert_same_weights(a, b)
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    assert a.validation_loss_curve_ == b.validation_loss_curve_


@pytest.mark.parametrize(
    ("make", "dtype"),
    [(sp.csr_array, np.float32), (sp.csc_array, np.int8), (sp.coo_matrix, np.float64)],
)
def test_the_numbers_are_those_of_dense_rows(make, dtype, data):
    X, y = (8 * data[0]).astype(dtype), data[1]
    dense, sparse = small().fit(X, y), small().fit(make(X), y)
    assert_same(dense, sparse, X)
    np.testing.assert_array_equal(sparse.predict(make(X)), dense.predict(X))
    assert sparse.score(make(X), y) == dense.score(X, y)


def test_so_they_are_with_weights_data_loaders_and_a_pair(data):
    X, y = data
    for params in (
        {"class_weight": {0: 2.0, 1: 0.0}},
        {"iterator_train": DataLoader, "iterator_valid": DataLoader},
        {"validation_split": (sp.csc_array(X[:20]), y[:20])},
    ):
        assert_same(small(**params).fit(X, y), small(**params).fit(sp.csr_array(X), y), X)


def test_rows_become_dense_a_batch_at_a_time(data, monkeypatch):
    X, y = data
    sizes, toarray = [], sp.csr_array.toarray

    def counted(self, *args, **kwargs):
        sizes.append(self.shape[0])
        return toarray(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", counted)
    small(max_iter=1, iterator_valid__batch_size=20).fit(sp.csr_array(X), y).predict_proba(
        sp.csr_array(X)
    )
    # The inspection; 83 rows in batches of 15, 17 to validate; then all of them.
    assert sizes == [4, *[15] * 5, 8, 17, *[20] * 5]
