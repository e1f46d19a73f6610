"""The graph of near rows: what is searched, what a user brings, what is kept, what is refused."""

import numpy as np
import pytest
from joblib import Memory
from scipy.sparse import coo_matrix, csc_array, csr_array, random_array
from sklearn.neighbors import KNeighborsTransformer, RadiusNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from sklearn_mmdinit._graph import Walk, neighbor_graph
from sklearn_mmdinit._graph.neighbors import nearest_neighbors
from sklearn_mmdinit._graph.search import SEARCHES

X = np.random.default_rng(0).normal(size=(60, 4))


def some_weights(seed=0):
    rng = np.random.default_rng(seed)
    return random_array((60, 60), density=0.1, rng=rng, dtype=np.float32)


def assert_clean(graph):
    """What every graph is, wherever it comes from."""
    assert isinstance(graph, csr_array)
    assert graph.shape == (60, 60)
    assert graph.dtype == np.float32
    assert graph.has_canonical_format
    assert np.all(graph.data > 0)
    assert not graph.diagonal().any()


@pytest.mark.parametrize("n_neighbors", [1, 7])
def test_edges_lead_to_the_nearest_neighbours(n_neighbors):
    graph = neighbor_graph(X, n_neighbors=n_neighbors, n_components=2)
    assert_clean(graph)
    expected = np.zeros((60, 60))
    np.put_along_axis(expected, nearest_neighbors(X, n_neighbors, n_components=2), 1, axis=1)
    np.testing.assert_array_equal(graph.toarray(), expected)


@pytest.mark.parametrize("form", [csr_array, csc_array, coo_matrix, lambda graph: graph.toarray()])
def test_a_matrix_is_taken_as_weights(form):
    weights = some_weights()
    graph = neighbor_graph(X, graph=form(weights))
    assert_clean(graph)
    expected = weights.toarray()
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(graph.toarray(), expected)


def test_loops_zeros_and_order_of_a_matrix_are_tidied_and_the_matrix_left_alone():
    data, rows, columns = [0.0, 3, 1, 2, 1], [0, 0, 0, 1, 1], [1, 5, 0, 4, 2]
    mine = coo_matrix((data, (rows, columns)), shape=(60, 60))
    graph = neighbor_graph(X, graph=mine)
    assert_clean(graph)
    assert graph.nnz == 3
    assert (graph[0, 5], graph[1, 4], graph[1, 2]) == (3, 2, 1)
    assert mine.nnz == 5


def test_scikit_learns_distances_become_edges():
    """Equal rows have distance 0, which is an edge all the same."""
    repeated = np.repeat(X[:30], 2, axis=0)
    graph = neighbor_graph(repeated, graph=KNeighborsTransformer(n_neighbors=3))
    assert_clean(graph)
    assert set(graph.data) == {1}
    pair = np.arange(60) ^ 1
    np.testing.assert_array_equal(graph[np.arange(60), pair], 1)


@pytest.mark.parametrize(
    "transformer",
    [
        KNeighborsTransformer(n_neighbors=4, mode="connectivity"),
        KNeighborsTransformer(n_neighbors=4, mode="distance"),
        make_pipeline(StandardScaler(with_std=False), KNeighborsTransformer(n_neighbors=4)),
    ],
)
def test_transformers_of_neighbours_agree_with_the_search(transformer):
    graph = neighbor_graph(X, graph=transformer)
    k = round(graph.sum() / 60)
    # "distance" adds the row itself to the neighbours asked for, "connectivity" counts it in.
    assert k in (3, 4)
    np.testing.assert_array_equal(graph.toarray(), neighbor_graph(X, n_neighbors=k).toarray())


def test_a_transformer_is_cloned():
    transformer = RadiusNeighborsTransformer(radius=2.0)
    assert_clean(neighbor_graph(X, graph=transformer))
    assert not hasattr(transformer, "n_features_in_")


def test_any_object_with_fit_transform():
    class Ring:
        def fit_transform(self, X):
            return csr_array(np.roll(np.eye(len(X)), 1, axis=1) * 0.5)

    graph = neighbor_graph(X, graph=Ring())
    np.testing.assert_array_equal(graph.toarray(), np.roll(np.eye(60), 1, axis=1))


def test_the_search_is_kept_in_a_memory(tmp_path, monkeypatch, capsys):
    memory = Memory(str(tmp_path), verbose=0)  # of a Path joblib makes another folder
    first = neighbor_graph(X, memory=memory)

    def search(*arguments):
        raise AssertionError("searched again")

    monkeypatch.setitem(SEARCHES, "exact", search)
    again = neighbor_graph(X.copy(), memory=str(tmp_path), n_jobs=2, verbose=1)
    np.testing.assert_array_equal(first.toarray(), again.toarray())
    assert capsys.readouterr() == ("", "")
    for other in ({"n_neighbors": 9}, {"n_components": 2}, {"seed": 1}, {"algorithm": "exact"}):
        with pytest.raises(AssertionError, match="searched again"):
            neighbor_graph(X, memory=memory, **other)


@pytest.mark.parametrize(
    ("graph", "error", "message"),
    [
        (csr_array(np.ones((60, 3))), ValueError, r"square matrix: got shape \(60, 3\)"),
        (np.ones(60), ValueError, r"square matrix: got shape \(60,\)"),
        (csr_array(np.ones((3, 3))), ValueError, "graph has 3 rows and X has 60"),
        (csr_array((60, 60)), ValueError, "graph has no edge"),
        (csr_array(np.eye(60)), ValueError, "graph has no edge"),
        (csr_array(np.eye(60, k=1) * 1j), ValueError, "must be real: got complex128"),
        (np.full((60, 60), "1"), ValueError, "must be real: got <U1"),
        (np.full((60, 60), "a", dtype=object), ValueError, "must be numbers: could not convert"),
        ("knn", TypeError, r"KNeighborsTransformer\(\): got str"),
        (KNeighborsTransformer, TypeError, "got the class KNeighborsTransformer"),
        (np.ma.masked_equal(np.eye(60, k=1), 0), TypeError, "masked array: give graph.filled"),
        (StandardScaler(), TypeError, "must give a sparse matrix: got .*ndarray"),
    ],
)
def test_a_graph_that_is_none_is_refused(graph, error, message):
    with pytest.raises(error, match=message):
        neighbor_graph(X, graph=graph)


@pytest.mark.parametrize(("weight", "name"), [(-1, "-1"), (np.nan, "nan"), (np.inf, "inf")])
def test_a_weight_that_is_none_is_named(weight, name):
    weights = some_weights().toarray().astype(np.float64)
    weights[7, 3] = weights[8, 4] = weight
    message = rf"\(7, 3\) is {name}.*, and 1 more"
    with pytest.raises(ValueError, match=message):
        neighbor_graph(X, graph=csr_array(weights))


@pytest.mark.parametrize("size", [1e-320, 1e-50, 1e50])
def test_only_ratios_of_weights_count(size):
    weights = csr_array(some_weights() > 0.5) + csr_array(some_weights() > 0)  # 1 and 2
    plain, scaled = (neighbor_graph(X, graph=weights * factor) for factor in (1.0, size))
    np.testing.assert_array_equal(scaled.indices, plain.indices)
    starts = np.arange(60)
    ends = [Walk.on(g).ends(starts, 5.0, np.random.default_rng(0)) for g in (plain, scaled)]
    np.testing.assert_array_equal(*ends)


def test_a_faint_edge_beside_a_strong_one_and_a_faint_row_are_kept():
    weights = csr_array(([1.0, 1e-60, 1e-60], ([0, 0, 1], [1, 2, 2])), shape=(60, 60))
    graph = neighbor_graph(X, graph=weights)
    np.testing.assert_array_equal(graph.toarray(), weights.toarray())
    np.testing.assert_array_equal(Walk.on(graph).ends([1], 1.0, np.random.default_rng(0)), [2])


@pytest.mark.parametrize("dtype", [np.float16, object])
def test_a_dense_matrix_may_be_of_a_type_that_scipy_has_not(dtype):
    weights = some_weights().toarray().round(1)
    graph = neighbor_graph(X, graph=weights.astype(dtype))
    assert_clean(graph)
    expected = neighbor_graph(X, graph=weights.astype(dtype).astype(np.float64))
    np.testing.assert_array_equal(graph.toarray(), expected.toarray())


def test_a_transformer_cannot_change_the_rows():
    rows = X.copy()
    graph = neighbor_graph(
        rows, graph=make_pipeline(StandardScaler(copy=False), KNeighborsTransformer())
    )
    np.testing.assert_array_equal(rows, X)
    copied = neighbor_graph(X, graph=make_pipeline(StandardScaler(), KNeighborsTransformer()))
    np.testing.assert_array_equal(graph.toarray(), copied.toarray())
    doubled = FunctionTransformer(lambda rows: rows.__imul__(2.0))
    with pytest.raises(ValueError, match="graph=Pipeline writes into the rows"):
        neighbor_graph(rows, graph=make_pipeline(doubled, KNeighborsTransformer()))


def test_what_a_transformer_draws_follows_from_the_seed():
    transformer = make_pipeline(GaussianRandomProjection(2), KNeighborsTransformer())
    first, again, other = (
        neighbor_graph(X, graph=transformer, seed=seed).toarray() for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert transformer[0].random_state is None
