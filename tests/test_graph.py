"""The graph of near rows: nearest neighbours, edges and their weights, walks."""

import sys
import tracemalloc
import types
from importlib.machinery import ModuleSpec

import joblib
import numpy as np
import pytest
import torch
from scipy.sparse import coo_matrix, csc_array, csr_array, random_array

from helpers import threads
from sklearn_mmdinit.embedding_classifier import NeighborSpreading
from sklearn_mmdinit.graph.neighbors import (
    distinct_rows,
    nearest_neighbors,
    neighbor_graph,
    principal_components,
    weighed_by_shared_neighbors,
)
from sklearn_mmdinit.graph.walks import Walk

SEEDS = range(3)


def some_rows(seed, n=80, p=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) * 0.9 ** np.arange(p) + 10 * rng.normal(size=p)


def by_hand(points, k):
    """All distances at once."""
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :k]


def assert_proper(neighbors, n, k):
    """Right shape and type, rows of the data, none its own neighbour, none twice."""
    assert neighbors.shape == (n, k)
    assert neighbors.dtype == np.int32
    assert neighbors.min() >= 0
    assert neighbors.max() < n
    assert not (neighbors == np.arange(n)[:, None]).any()
    assert np.all(np.diff(np.sort(neighbors, axis=1), axis=1) > 0)


SIZES = [(1, 80, 6), (79, 80, 6), (5, 45, 60), (5, 80, 60)]


@pytest.mark.parametrize(("n_neighbors", "n", "p"), SIZES)
def test_exact_is_what_all_distances_of_fifty_components_give(n_neighbors, n, p):
    X = some_rows(0, n, p)
    found = nearest_neighbors(X, n_neighbors)
    assert_proper(found, n, n_neighbors)
    components = X @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:50].T
    np.testing.assert_array_equal(found, by_hand(components, n_neighbors))


@pytest.mark.parametrize("n_components", [3, 50])
@pytest.mark.parametrize("exponent", [-80, 60, 122])
def test_no_size_of_the_numbers_is_too_large_or_too_small(exponent, n_components):
    X = some_rows(0)
    scaled = principal_components(X * 2.0**exponent, n_components).astype(np.float64)
    plain = principal_components(X, n_components)
    scaled *= np.abs(plain).max() / np.abs(scaled).max()
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-5)
    found = nearest_neighbors(X * 2.0**exponent, 5)
    np.testing.assert_array_equal(found, nearest_neighbors(X, 5))


def test_small_differences_of_large_numbers_are_seen():
    """In float32 as they stand all these rows are equal."""
    X = 1e9 + np.array([[0.0], [1.0], [3.0], [7.0]])
    np.testing.assert_array_equal(nearest_neighbors(X, 1), [[1], [0], [1], [2]])


@pytest.mark.parametrize("n_neighbors", [2, 3, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_copies_stand_in_a_ring_and_share_the_neighbours_of_their_kind(seed, n_neighbors):
    """A row 30 times, others a few times."""
    rng = np.random.default_rng(seed)
    X = some_rows(seed, n=40, p=2)
    repeats = np.append(30, rng.integers(1, 4, 39))
    X = rng.permutation(np.repeat(X, repeats, axis=0))
    X -= X.mean(axis=0)
    found = nearest_neighbors(X, n_neighbors)
    assert_proper(found, len(X), n_neighbors)
    first, place = distinct_rows(X)
    k = n_neighbors - 1
    different = by_hand(X[first], n_neighbors)
    copies = np.bincount(place)[place] > 1
    np.testing.assert_array_equal(place[found[copies, 0]], place[copies])
    np.testing.assert_array_equal(place[found[copies, 1:]], different[place[copies], :k])
    np.testing.assert_array_equal(place[found[~copies]], different[place[~copies]])


def test_one_neighbour_is_never_a_copy():
    X = np.repeat([[0.0], [1.0], [3.0]], 4, axis=0)
    found = nearest_neighbors(X, 1)
    np.testing.assert_array_equal(X[found[:, 0], 0], np.repeat([1.0, 0.0, 1.0], 4))
    assert len(set(found[:4, 0])) == 4  # each its own of the four copies
    np.testing.assert_array_equal(X[:8][nearest_neighbors(X[:8], 2)[:, 0]], X[:8])  # of two kinds


@pytest.mark.parametrize("dtype", [np.float64, np.int16])
def test_distinct_rows_are_those_of_numpy(dtype):
    X = np.random.default_rng(0).integers(0, 3, (9_000, 5)).astype(dtype)
    first, place = distinct_rows(X)
    _, index, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first, np.sort(index))
    np.testing.assert_array_equal(first[place], index[inverse.ravel()])
    assert len(distinct_rows(np.array([[0.0], [-0.0]]))[0]) == 1


class Spy(np.ndarray):
    """An array that remembers how many rows were taken of it at most."""

    most = 0

    def __getitem__(self, key):
        taken = np.asarray(super().__getitem__(key))
        Spy.most = max(Spy.most, len(taken))
        return taken


def test_a_memory_map_is_read_by_blocks_and_a_sample(tmp_path):
    X = some_rows(0, n=5_000, p=60).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r").view(Spy)
    sampled = [principal_components(rows, most_entries=1_000 * 60) for rows in (on_disk, X)]
    np.testing.assert_array_equal(*sampled)
    np.testing.assert_array_equal(distinct_rows(on_disk), distinct_rows(X))
    assert 1_000 <= Spy.most <= 4096


@pytest.mark.long  # numba compiles for half a minute
@pytest.mark.filterwarnings("ignore:Failed to correctly find n_neighbors")  # of the few
def test_approximate_finds_nearly_all_and_repeats_itself():
    X = np.random.default_rng(0).normal(size=(2_000, 8)).astype(np.float32)
    with threads(torch.get_num_threads()):
        found, again = (nearest_neighbors(X, 10, exact_below=0) for _ in range(2))
        # So few that all others are neighbours: nothing approximate is left.
        few = nearest_neighbors(X[:6], 5, exact_below=0)
    assert_proper(found, 2_000, 10)
    np.testing.assert_array_equal(found, again)
    exact = nearest_neighbors(X, 10)
    assert (found[:, :, None] == exact[:, None, :]).any(axis=1).mean() > 0.98
    np.testing.assert_array_equal(few, by_hand(X[:6], 5))


class TooFew:
    """Stands in for pynndescent, and finds nothing for some rows."""

    n_searches = 0

    def __init__(self, points, n_neighbors, random_state):
        TooFew.n_searches += 1
        order = np.column_stack([np.arange(len(points)), by_hand(points, n_neighbors - 1)])
        order[::3, 2:] = -1
        self.neighbor_graph = order.astype(np.int32), None


@pytest.mark.parametrize("n", [79, 80])
def test_the_search_depends_on_the_number_of_different_rows_and_is_completed(monkeypatch, n):
    stand_in = types.SimpleNamespace(NNDescent=TooFew, __spec__=ModuleSpec("pynndescent", None))
    monkeypatch.setitem(sys.modules, "pynndescent", stand_in)
    TooFew.n_searches = 0
    X = some_rows(0, n=n)
    np.testing.assert_array_equal(nearest_neighbors(X, 3, exact_below=80), by_hand(X, 3))
    nearest_neighbors(np.repeat(X, 2, axis=0), 3, exact_below=80)
    assert TooFew.n_searches == (0 if n < 80 else 2)


def test_without_pynndescent_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    X = some_rows(0)
    with pytest.warns(UserWarning, match=r"80 rows may take 0 minutes .*pip install pynndescent"):
        found = nearest_neighbors(X, 3, exact_below=80)
    np.testing.assert_array_equal(found, by_hand(X, 3))


ROWS = np.random.default_rng(0).normal(size=(60, 4))


WEIGHTS = random_array((60, 60), density=0.1, random_state=np.random.default_rng(0), dtype="f")
WEIGHTS.data[:9] = 0  # as explicit entries, beside loops
FORMS = csr_array, csc_array, coo_matrix, lambda weights: weights.toarray().astype(object)


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_is_taken_as_weights_without_loops_and_zeros_and_left_alone(form):
    mine, expected = form(WEIGHTS), WEIGHTS.toarray()
    before = joblib.hash(mine)
    graph = neighbor_graph(ROWS, graph=mine)
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(graph.toarray(), expected)
    assert isinstance(graph, csr_array)
    assert graph.dtype.kind == "f"
    assert graph.has_canonical_format
    assert graph.nnz == np.count_nonzero(expected)
    assert joblib.hash(mine) == before


@pytest.mark.parametrize("size", [1e-320, 1e-50, 1e50])
def test_only_ratios_of_weights_count(size):
    weights = csr_array(WEIGHTS > 0.5) + csr_array(WEIGHTS > 0)  # 1 and 2
    plain, scaled = (neighbor_graph(ROWS, graph=weights * factor) for factor in (1.0, size))
    np.testing.assert_array_equal(scaled.indices, plain.indices)
    ends = [ends_of(Walk.on(g), range(60), 5.0) for g in (plain, scaled)]
    np.testing.assert_array_equal(*ends)


def test_weights_are_those_counted_one_by_one():
    found = np.random.default_rng(0).random((60, 60)) < 0.1
    np.fill_diagonal(found, False)
    graph = csr_array(found * 7.0)
    whole = weighed_by_shared_neighbors(graph)
    for i, j in np.ndindex(found.shape):
        expected = (1 + (found[i] & found[j]).sum()) ** 2 if found[i, j] else 0.0
        assert whole[i, j] == pytest.approx(expected, rel=1e-6)
    assert (weighed_by_shared_neighbors(graph, block_size=30) != whole).nnz == 0


def test_memory_does_not_grow_with_the_square_of_a_hub():
    n = 3000
    hub = csr_array((np.ones(n - 1), (np.arange(1, n), np.zeros(n - 1, dtype=int))), shape=(n, n))
    tracemalloc.start()
    try:
        weighed_by_shared_neighbors(hub)
        # 9 million pairs have the hub in common: 108 MB of them.
        assert tracemalloc.get_traced_memory()[1] < 70e6
    finally:
        tracemalloc.stop()


def some_graph(seed, n=12, density=0.3):
    """Weights over six orders of magnitude, with a loop and a row without edges here and there."""
    rng = np.random.default_rng(seed)
    graph = csr_array(random_array((n, n), density=density, random_state=rng, dtype=np.float32))
    graph.data[:] = 10.0 ** rng.uniform(-3, 3, graph.nnz)
    return graph


def transitions(graph):
    """The transition matrix of one step, dense; a row without edges leads to itself."""
    P = graph.toarray().astype(float)
    isolated = P.sum(axis=1) == 0
    P[isolated, isolated] = 1
    return P / P.sum(axis=1, keepdims=True)


def ends_of(walk, starts, mean_length, random=None):
    """Ends of walks that one generator draws."""
    return walk.ends([starts], mean_length, [random or np.random.default_rng(0)])[0]


def law_of_ends(P, mean_length):
    """(1 - q) sum_t q^(t-1) P^t in closed form, P (1 - q) (1 - q P)^-1."""
    q = 1 - 1 / mean_length
    return P @ np.linalg.inv(np.eye(len(P)) - q * P) * (1 - q)


@pytest.mark.parametrize("mean_length", [1, 1.5, 25.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_ends_follow_the_geometric_sum_of_powers(seed, mean_length):
    graph = some_graph(seed)
    starts = np.repeat(np.arange(12)[:, None], 5_000, axis=1)
    randoms = np.random.default_rng(seed).spawn(12)
    ends = Walk.on(graph).ends(starts, mean_length, randoms)
    law = law_of_ends(transitions(graph), mean_length)
    counts = np.stack([np.bincount(row, minlength=12) for row in ends])
    assert not counts[law == 0].any()
    # Counts are binomial: six standard deviations, and one for the rarest.
    deviation = np.sqrt(5_000 * law * (1 - law))
    assert np.all(np.abs(counts - 5_000 * law) <= 6 * deviation + 1)


# Draws walks of one step, and numbers at equal distances.
GRID = types.SimpleNamespace(
    geometric=lambda p, size: np.ones(size, dtype=int),
    random=lambda size: (np.arange(size) + 0.5) / size,
)


@pytest.mark.parametrize("seed", range(8))
def test_one_step_has_the_probability_of_each_edge(seed):
    graph, starts = some_graph(seed), np.repeat(np.arange(12)[:, None], 100_000, axis=1)
    ends = Walk.on(graph).ends(starts, 1, [GRID] * 12)
    shares = [np.bincount(row, minlength=12) / 100_000 for row in ends]
    np.testing.assert_allclose(shares, transitions(graph), rtol=0, atol=1e-4)


def test_walks_of_a_call_are_independent():
    """Pairs of walks from one start: the law of the pair is the product."""
    graph = some_graph(1)
    start = int(np.argmax(np.diff(graph.indptr)))
    pairs = ends_of(Walk.on(graph), np.full(40_000, start), 3).reshape(-1, 2)
    law = law_of_ends(transitions(graph), 3)[start]
    counts = np.bincount(12 * pairs[:, 0] + pairs[:, 1], minlength=144)
    expected = 20_000 * np.outer(law, law).ravel()
    assert np.all(np.abs(counts - expected) <= 6 * np.sqrt(expected) + 1)


@pytest.mark.parametrize("shape", [(1, 0), (2, 3)])
def test_ends_of_a_row_come_from_its_generator_alone(shape):
    walk, starts = Walk.on(some_graph(0)), np.zeros(shape, int)
    ends = walk.ends(starts, 3, [np.random.default_rng(i) for i in range(len(starts))])
    assert ends.shape == shape
    assert ends.dtype == np.int64
    for i, own in enumerate(ends):
        np.testing.assert_array_equal(own, ends_of(walk, starts[i], 3, np.random.default_rng(i)))


def test_labels_spread_as_the_equation_says_and_new_rows_ask_their_nearest(monkeypatch):
    X, new = some_rows(0), some_rows(0, n=20)
    weights = neighbor_graph(X).toarray()
    weights = weights + weights.T
    degrees = weights.sum(axis=1)
    given = np.zeros((80, 2))
    given[[3, 30, 50], [0, 1, 1]] = 1.0
    solved = np.linalg.solve(
        np.eye(80) - 0.7 * weights / np.sqrt(np.outer(degrees, degrees)), given
    )
    solved /= solved.sum(axis=1, keepdims=True)
    monkeypatch.setattr("sklearn_mmdinit.embedding_classifier._ALPHA", 0.7)
    clf = NeighborSpreading().fit(X, given)
    np.testing.assert_allclose(clf.label_distributions_, solved, rtol=1e-5)
    nearest = np.argsort(np.linalg.norm(new[:, None] - X, axis=2), axis=1)[:, :10]
    expected = solved[nearest].mean(axis=1)
    np.testing.assert_allclose(clf.predict_proba(new), expected, rtol=1e-5)
    # Rows that no label reaches have no class.
    X = np.concatenate([X, X + 1000.0])
    found = NeighborSpreading().fit(X, np.eye(160, 2)).predict_proba(X)
    assert not found[80:].any()
    assert np.abs(found[:80] - 0.5).min() > 0
    np.testing.assert_allclose(found[:80].sum(axis=1), 1.0)
