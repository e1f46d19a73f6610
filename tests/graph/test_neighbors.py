"""Nearest neighbours: exact against NumPy, equal rows, rows on disk, and the approximate search."""

import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import ortho_group

from sklearn_mmdinit._graph import neighbors, projection, search
from sklearn_mmdinit._graph.distinct import count_distinct, distinct_rows
from sklearn_mmdinit._graph.neighbors import nearest_neighbors
from sklearn_mmdinit._graph.projection import principal_components

SEEDS = range(5)


def some_rows(seed, n=80, p=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) * 2.0 ** -np.arange(p) + 10 * rng.normal(size=p)


def by_hand(points, k):
    """All distances at once."""
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1)[:, :k]


def components(X, k):
    """The first principal components by a singular value decomposition."""
    centred = X - X.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:k].T


def reaches_all(neighbors):
    n, k = neighbors.shape
    graph = csr_array((np.ones(n * k), neighbors.ravel(), np.arange(0, n * k + 1, k)), (n, n))
    return connected_components(graph, connection="strong")[0] == 1


def assert_proper(neighbors, n, k):
    """Right shape and type, rows of the data, none its own neighbour, none twice."""
    assert neighbors.shape == (n, k)
    assert neighbors.dtype == np.int32
    assert neighbors.min() >= 0
    assert neighbors.max() < n
    assert not (neighbors == np.arange(n)[:, None]).any()
    assert np.all(np.diff(np.sort(neighbors, axis=1), axis=1) > 0)


# ------------------------------------------------------------------------------------- exact search


@pytest.mark.parametrize("n_neighbors", [1, 5, 79])
@pytest.mark.parametrize("seed", SEEDS)
def test_exact_is_what_all_distances_give(seed, n_neighbors):
    X = some_rows(seed)
    found = nearest_neighbors(X, n_neighbors, n_components=None)
    assert_proper(found, 80, n_neighbors)
    np.testing.assert_array_equal(found, by_hand(X, n_neighbors))


@pytest.mark.parametrize("n_components", [1, 3, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_distances_are_those_of_the_principal_components(seed, n_components):
    X = some_rows(seed)
    found = nearest_neighbors(X, 5, n_components=n_components)
    np.testing.assert_array_equal(found, by_hand(components(X, n_components), 5))


@pytest.mark.parametrize("n_components", [6, 7, 1000, None])
def test_more_components_than_there_are_leave_the_rows_as_they_are(n_components):
    X = some_rows(0)
    found = nearest_neighbors(X, 5, n_components=n_components)
    np.testing.assert_array_equal(found, by_hand(X, 5))


def test_more_components_than_rows_leave_the_rows_as_they_are():
    X = some_rows(0, n=4)
    np.testing.assert_array_equal(nearest_neighbors(X, 2, n_components=5), by_hand(X, 2))


@pytest.mark.parametrize("n_components", [2, None])
@pytest.mark.parametrize("seed", SEEDS)
def test_rotation_shift_and_scale_change_nothing(seed, n_components):
    X = some_rows(seed)
    moved = 7 * X @ ortho_group.rvs(6, random_state=seed) + 1000
    np.testing.assert_array_equal(
        nearest_neighbors(moved, 5, n_components=n_components),
        nearest_neighbors(X, 5, n_components=n_components),
    )


@pytest.mark.parametrize("n_components", [3, None])
@pytest.mark.parametrize("exponent", [-1000, -120, -80, 60, 67, 122])
def test_no_size_of_the_numbers_is_too_large_or_too_small(exponent, n_components):
    X = some_rows(0)
    scaled = principal_components(X * 2.0**exponent, n_components).astype(np.float64)
    plain = principal_components(X, n_components)
    scaled *= np.abs(plain).max() / np.abs(scaled).max()
    np.testing.assert_allclose(scaled, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(
        nearest_neighbors(X * 2.0**exponent, 5, n_components=n_components),
        nearest_neighbors(X, 5, n_components=n_components),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbours_follow_the_order_of_the_rows(seed):
    X = some_rows(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    name = np.argsort(order)
    np.testing.assert_array_equal(
        nearest_neighbors(X[order], 5, n_components=3),
        name[nearest_neighbors(X, 5, n_components=3)][order],
    )


@pytest.mark.parametrize("n_components", [3, 8, None])
def test_constant_features_change_nothing(n_components):
    X = some_rows(0)
    constant = np.hstack([np.zeros((80, 1)), X, np.full((80, 1), 1e6)])
    np.testing.assert_array_equal(
        nearest_neighbors(constant, 5, n_components=n_components),
        nearest_neighbors(X, 5, n_components=n_components),
    )


def test_small_differences_of_large_numbers_are_seen():
    """In float32 as they stand all these rows are equal."""
    X = 1e9 + np.array([[0.0], [1.0], [3.0], [7.0]])
    np.testing.assert_array_equal(nearest_neighbors(X, 1), [[1], [0], [1], [2]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.uint8, np.int64, bool])
def test_any_type_of_number(dtype):
    X = np.array([[0, 0], [0, 1], [1, 1], [1, 0]], dtype=dtype)
    found = nearest_neighbors(X, 2, n_components=None)
    np.testing.assert_array_equal(np.sort(found), [[1, 3], [0, 2], [1, 3], [0, 2]])


def test_blocks_of_queries_make_no_difference(monkeypatch):
    X = some_rows(0)
    whole = nearest_neighbors(X, 5)
    monkeypatch.setattr(search, "_QUERIES", 7)
    np.testing.assert_array_equal(nearest_neighbors(X, 5), whole)


def test_rows_alike_in_the_components_still_get_proper_neighbours():
    """They are not equal in X, so not looked for; none may be its own neighbour all the same."""
    X = np.zeros((40, 3))
    X[:, 0] = 100 * (np.arange(40) % 2)
    X[:, 1:] = 1e-9 * np.random.default_rng(0).normal(size=(40, 2))
    assert_proper(nearest_neighbors(X, 5, n_components=1), 40, 5)


def test_the_bar_is_shown_when_asked_for(capsys):
    X = some_rows(0)
    nearest_neighbors(X, 5, verbose=0)
    assert capsys.readouterr() == ("", "")
    nearest_neighbors(X, 5, verbose=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert "neighbours" in err


# --------------------------------------------------------------------------------------- equal rows


@pytest.mark.parametrize("n_neighbors", [2, 3, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_copies_are_no_island(seed, n_neighbors):
    """A row 30 times, others a few times: from every row a path leads to every other."""
    rng = np.random.default_rng(seed)
    X = some_rows(seed, n=40, p=2)
    repeats = np.append(30, rng.integers(1, 4, 39))
    X = rng.permutation(np.repeat(X, repeats, axis=0))
    X -= X.mean(axis=0)
    found = nearest_neighbors(X, n_neighbors, n_components=None)
    assert_proper(found, len(X), n_neighbors)
    # The rest of the graph need not be connected: among the different rows it is as it is.
    first, place = distinct_rows(X)
    k = n_neighbors - 1
    different = by_hand(X[first], n_neighbors)
    copies = np.bincount(place)[place] > 1
    np.testing.assert_array_equal(place[found[copies, 0]], place[copies])
    np.testing.assert_array_equal(place[found[copies, 1:]], different[place[copies], :k])
    np.testing.assert_array_equal(place[found[~copies]], different[place[~copies]])


def test_a_path_leads_from_each_copy_to_all_rows():
    line = np.repeat(np.arange(6.0)[:, None], [20, 1, 3, 1, 1, 50], axis=0)
    assert reaches_all(nearest_neighbors(line, 3))
    # Without the ring there would be an island of 20 and one of 50.
    assert not reaches_all(by_hand(line, 3))


def test_one_neighbour_is_never_a_copy():
    X = np.repeat([[0.0], [1.0], [3.0]], 4, axis=0)
    found = nearest_neighbors(X, 1)
    np.testing.assert_array_equal(X[found[:, 0], 0], np.repeat([1.0, 0.0, 1.0], 4))
    assert len(set(found[:4, 0])) == 4  # each its own of the four copies


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_distinct_rows_are_those_of_numpy(dtype):
    X = np.random.default_rng(0).integers(0, 3, (9_000, 5)).astype(dtype)
    first, place = distinct_rows(X)
    _, index, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first, np.sort(index))
    np.testing.assert_array_equal(first[place], index[inverse.ravel()])


def test_different_rows_are_counted_as_far_as_asked_for():
    X = np.repeat(np.arange(5.0), 3)[:, None] * [1.0, -1.0]
    assert [count_distinct(X, most) for most in (1, 4, 5, 6, 100)] == [1, 4, 5, 5, 5]
    assert count_distinct(X.reshape(15, 1, 2, 1)[::-1], 100) == 5
    assert count_distinct(np.array([[0.0], [-0.0]]), 2) == 1


def test_zero_has_one_sign():
    np.testing.assert_array_equal(distinct_rows(np.array([[0.0], [-0.0]]))[1], [0, 0])


# -------------------------------------------------------------------------- rows larger than memory


class Spy(np.ndarray):
    """An array that remembers how many rows were taken of it at most."""

    most = 0

    def __getitem__(self, key):
        taken = np.asarray(super().__getitem__(key))
        Spy.most = max(Spy.most, len(taken))
        return taken


def test_rows_are_read_by_blocks_only(tmp_path, monkeypatch):
    monkeypatch.setattr(Spy, "most", 0)
    X = some_rows(0, n=9_000).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = nearest_neighbors(on_disk.view(Spy), 3, n_components=4)
    assert 0 < Spy.most <= 4096
    np.testing.assert_array_equal(found, nearest_neighbors(X, 3, n_components=4))


def test_components_of_a_draw_of_rows_are_near_those_of_all(monkeypatch):
    X = some_rows(0, n=5_000)
    whole = principal_components(X, 2)
    monkeypatch.setattr(projection, "_MOST_ENTRIES", 2_000 * 6)
    part, again = principal_components(X, 2, seed=1), principal_components(X, 2, seed=1)
    np.testing.assert_array_equal(part, again)
    centred = part - part.mean(axis=0)
    correlation = np.abs((centred * whole).sum(axis=0) / (whole**2).sum(axis=0))
    np.testing.assert_allclose(correlation, 1, atol=0.01)
    assert not np.array_equal(part, whole)


def test_many_features_are_decomposed_at_random(monkeypatch):
    X = some_rows(0, n=500)
    exact = principal_components(X, 2)
    monkeypatch.setattr(projection, "_MOST_FEATURES", 5)
    np.testing.assert_allclose(np.abs(principal_components(X, 2)), np.abs(exact), atol=1e-3)


# ------------------------------------------------------------------------------- approximate search


@pytest.fixture(scope="module")
def approximate(tmp_path_factory):
    """Rows and what pynndescent finds for them.

    What numba compiles runs for a second here: it is not optimised, which takes a third less.
    It is kept in a folder of its own, for others that use this environment would get it too.
    """
    X = np.random.default_rng(0).normal(size=(2_000, 8)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_OPT", "0")
        patch.setenv("NUMBA_CACHE_DIR", str(tmp_path_factory.mktemp("numba")))
        yield X, nearest_neighbors(X, 10, algorithm="approximate", n_jobs=2, seed=3)


def test_approximate_finds_nearly_all(approximate):
    X, found = approximate
    assert_proper(found, 2_000, 10)
    exact = nearest_neighbors(X, 10, algorithm="exact")
    recall = (found[:, :, None] == exact[:, None, :]).any(axis=1).mean()
    assert recall > 0.98


def test_approximate_repeats_itself(approximate):
    X, found = approximate
    again = nearest_neighbors(X, 10, algorithm="approximate", n_jobs=2, seed=3)
    np.testing.assert_array_equal(found, again)


@pytest.mark.usefixtures("approximate")
@pytest.mark.parametrize("n_jobs", [None, 1, -1, 10_000])
def test_approximate_on_few_rows_and_any_number_of_threads(n_jobs):
    """So few that all others are neighbours: nothing approximate is left."""
    X = some_rows(0, n=6, p=8).astype(np.float32)
    found = nearest_neighbors(X, 5, algorithm="approximate", n_jobs=n_jobs)
    np.testing.assert_array_equal(found, by_hand(X, 5))


class TooFew:
    """Stands in for pynndescent, and finds nothing for some rows."""

    def __init__(self, points, n_neighbors, random_state, n_jobs):
        order = np.column_stack([np.arange(len(points)), by_hand(points, n_neighbors - 1)])
        order[::3, 2:] = -1
        self.neighbor_graph = order.astype(np.int32), None


def test_rows_with_too_few_neighbours_are_searched_exactly(monkeypatch):
    stand_in = types.SimpleNamespace(NNDescent=TooFew, __spec__=ModuleSpec("pynndescent", None))
    monkeypatch.setitem(sys.modules, "pynndescent", stand_in)
    X = some_rows(0)
    found = nearest_neighbors(X, 5, n_components=None, algorithm="approximate")
    np.testing.assert_array_equal(found, by_hand(X, 5))


# ------------------------------------------------------------------------------------- which search


@pytest.fixture
def searched(monkeypatch):
    """Names of the searches that were made."""
    names = []

    def remember(name):
        def stand_in(points, n_neighbors, n_jobs, seed, verbose):
            names.append(name)
            return by_hand(points, n_neighbors).astype(np.int32)

        return stand_in

    for name in list(search.SEARCHES):
        monkeypatch.setitem(search.SEARCHES, name, remember(name))
    return names


@pytest.mark.parametrize(("n", "name"), [(79, "exact"), (80, "approximate")])
def test_auto_goes_by_the_number_of_different_rows(monkeypatch, searched, n, name):
    monkeypatch.setattr(neighbors, "EXACT_BELOW", 80)
    nearest_neighbors(np.repeat(some_rows(0, n=n), 2, axis=0), 3)
    assert searched == [name]


def test_auto_without_pynndescent_warns_and_is_exact(monkeypatch, searched):
    monkeypatch.setattr(neighbors, "EXACT_BELOW", 80)
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.warns(UserWarning, match=r"80 rows may take 0 minutes .*mmdinit\[neighbors\]"):
        nearest_neighbors(some_rows(0), 3)
    assert searched == ["exact"]


def test_approximate_without_pynndescent_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ImportError, match=r"pip install 'sklearn_mmdinit\[neighbors\]'"):
        nearest_neighbors(some_rows(0), 3, algorithm="approximate")


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_neighbors": 80}, "80 rows are too few for n_neighbors=80, which takes 81"),
        ({"n_neighbors": 0}, "n_neighbors must be at least 1: got 0"),
        ({"n_components": 0}, "n_components must be None or at least 1: got 0"),
        ({"algorithm": "tree"}, "'auto', 'exact', 'approximate': got 'tree'"),
    ],
)
def test_errors_name_the_value(change, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbors(some_rows(0), **{"n_neighbors": 5} | change)


def test_too_few_different_rows():
    X = np.repeat(some_rows(0, n=5), 20, axis=0)
    with pytest.raises(ValueError, match=r"Only 5 of the 100 rows differ.*n_neighbors to 4 or"):
        nearest_neighbors(X, 5)
    assert_proper(nearest_neighbors(X, 4), 100, 4)
