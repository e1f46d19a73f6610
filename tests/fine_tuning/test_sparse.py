"""Sparse X: the same numbers as dense, and never dense as a whole."""

import numpy as np
import pytest
import scipy.sparse as sp
from torch.utils.data import DataLoader

from nets import Counting, assert_same_weights, digits, fits
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


def test_so_they_are_with_weights_unknown_labels_and_data_loaders(data):
    X, y = data
    for params in (
        {"class_weight": {0: 2.0, 1: 0.0}},
        {"unlabelled_label": 1, "validation_split": None},
        {"iterator_train": DataLoader, "iterator_valid": DataLoader},
    ):
        assert_same(small(**params).fit(X, y), small(**params).fit(sp.csr_array(X), y), X)


def test_so_they_are_with_partial_fit_and_a_pair(data):
    X, y = data
    pair = small(validation_split=(sp.csc_array(X[:20]), y[:20])).fit(X, y)
    assert_same(pair, small(validation_split=(X[:20], y[:20])).fit(sp.csr_array(X), y), X)
    streams = [small(), small()]
    for rows in (slice(0, 40), slice(40, 100)):
        streams[0].partial_fit(X[rows], y[rows], classes=[0, 1, 2])
        streams[1].partial_fit(sp.csr_array(X)[rows], y[rows], classes=[0, 1, 2])
    assert_same(*streams, X)


class TakesSparse(Counting):
    """An initializer that takes sparse rows, and says so."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y=None):
        assert sp.issparse(X)
        return super().fit(X.toarray())


def test_an_initializer_that_takes_sparse_rows_gets_them(data):
    X, y = data
    fits.clear()
    clf = small(warm_start_from=TakesSparse((8,), activation="relu"))
    clf.fit(sp.csr_array(X), y, X_unlabelled=X[:10])
    assert fits == [110]


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
    # 83 rows in batches of 15, 17 to validate; then all of them.
    assert sizes == [*[15] * 5, 8, 17, *[20] * 5]
