"""Walks on a graph: their law against powers of the transition matrix, and where they stay."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from sklearn_mmdinit._graph import Walk

SEEDS = range(5)


def some_graph(seed, n=12, density=0.3):
    """Weights over six orders of magnitude, with a loop and a row without edges here and there."""
    rng = np.random.default_rng(seed)
    graph = csr_array(random_array((n, n), density=density, rng=rng, dtype=np.float32))
    graph.data[:] = 10.0 ** rng.uniform(-3, 3, graph.nnz)
    return graph


def transitions(graph):
    """The transition matrix of one step, dense; a row without edges leads to itself."""
    P = graph.toarray().astype(float)
    isolated = P.sum(axis=1) == 0
    P[isolated, isolated] = 1
    return P / P.sum(axis=1, keepdims=True)


def law_of_ends(P, mean_length):
    """(1 - q) sum_t q^(t-1) P^t in closed form, P (1 - q) (1 - q P)^-1."""
    q = 1 - 1 / mean_length
    return P @ np.linalg.inv(np.eye(len(P)) - q * P) * (1 - q)


def assert_law(ends, law):
    """Counts of `ends` (n, W), row i from start i, against the probabilities `law` (n, n)."""
    n, n_walks = ends.shape
    counts = np.stack([np.bincount(row, minlength=n) for row in ends])
    assert not counts[law == 0].any()
    # Counts are binomial: six standard deviations, and one for the rarest.
    deviation = np.sqrt(n_walks * law * (1 - law))
    assert np.all(np.abs(counts - n_walks * law) <= 6 * deviation + 1)


def starts_of(n, n_walks):
    return np.repeat(np.arange(n)[:, None], n_walks, axis=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_step_follows_the_transition_matrix(seed):
    graph = some_graph(seed)
    ends = Walk.on(graph).ends(starts_of(12, 20_000), 1, np.random.default_rng(seed))
    assert_law(ends, transitions(graph))


@pytest.mark.parametrize("mean_length", [1.0, 1.5, 4, 25.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_ends_follow_the_geometric_sum_of_powers(seed, mean_length):
    graph = some_graph(seed)
    ends = Walk.on(graph).ends(starts_of(12, 5_000), mean_length, np.random.default_rng(seed))
    assert_law(ends, law_of_ends(transitions(graph), mean_length))


def test_the_closed_form_is_the_series():
    P, q = transitions(some_graph(0)), 0.75
    series = sum((1 - q) * q ** (t - 1) * np.linalg.matrix_power(P, t) for t in range(1, 200))
    np.testing.assert_allclose(law_of_ends(P, 4), series, atol=1e-12)


def test_walks_of_a_call_are_independent():
    """Pairs of walks from one start: the law of the pair is the product."""
    graph = some_graph(1)
    start = int(np.argmax(np.diff(graph.indptr)))
    pairs = Walk.on(graph).ends(np.full((20_000, 2), start), 3, np.random.default_rng(0))
    law = law_of_ends(transitions(graph), 3)[start]
    counts = np.bincount(12 * pairs[:, 0] + pairs[:, 1], minlength=144)
    expected = 20_000 * np.outer(law, law).ravel()
    assert np.all(np.abs(counts - expected) <= 6 * np.sqrt(expected) + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_new_names_of_the_rows_give_the_same_walks(seed):
    graph = some_graph(seed, n=40, density=0.2)
    name = np.random.default_rng(seed).permutation(40)  # row i is called name[i]
    order = np.argsort(name)
    lengths = np.diff(graph.indptr)[order]
    # Edges of a row stay in their order: the same draws then take the same edges.
    edges = np.concatenate([np.arange(*graph.indptr[i : i + 2]) for i in order])
    renamed = csr_array(
        (graph.data[edges], name[graph.indices[edges]], np.append(0, np.cumsum(lengths))),
        shape=(40, 40),
    )
    starts = np.random.default_rng(0).integers(0, 40, 300)
    ends = Walk.on(graph).ends(starts, 6, np.random.default_rng(1))
    again = Walk.on(renamed).ends(name[starts], 6, np.random.default_rng(1))
    # Equal but for draws within rounding of the end of an edge's interval, of which there are none.
    np.testing.assert_array_equal(again, name[ends])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_scale_of_a_row_does_not_matter(seed):
    graph = some_graph(seed)
    scale = 2.0 ** np.random.default_rng(seed).integers(-60, 60, 12)
    scaled = graph.copy()
    scaled.data *= np.repeat(scale, np.diff(graph.indptr)).astype(np.float32)
    starts = np.random.default_rng(0).integers(0, 12, 500)
    walks = [Walk.on(g).ends(starts, 5, np.random.default_rng(1)) for g in (graph, scaled)]
    np.testing.assert_array_equal(*walks)


def test_no_walk_leaves_its_component():
    rng = np.random.default_rng(0)
    blocks = [random_array((50, 50), density=0.1, rng=rng, dtype=np.float32) for _ in range(4)]
    graph = csr_array((200, 200), dtype=np.float32).tolil()
    for b, block in enumerate(blocks):
        graph[50 * b : 50 * b + 50, 50 * b : 50 * b + 50] = block.toarray()
    starts = np.arange(200).repeat(100)
    ends = Walk.on(csr_array(graph)).ends(starts, 30, rng)
    np.testing.assert_array_equal(ends // 50, starts // 50)


def test_rows_without_edges_stay_and_can_be_arrived_at():
    graph = csr_array(np.array([[0, 0, 0], [1.0, 0, 0], [0, 0, 0]]))
    ends = Walk.on(graph).ends([0, 1, 2], 50, np.random.default_rng(0))
    np.testing.assert_array_equal(ends, [0, 0, 2])


def test_a_graph_without_edges_stays():
    ends = Walk.on(csr_array((4, 4))).ends([3, 0], 5, np.random.default_rng(0))
    np.testing.assert_array_equal(ends, [3, 0])


def test_explicit_zeros_are_no_edges_and_the_graph_is_not_changed():
    data, indices = np.array([0.0, 1, 0, 0, 2, 0]), np.array([0, 1, 2, 0, 1, 2])
    graph = csr_array((data, indices, [0, 3, 3, 6]), shape=(3, 3))
    ends = Walk.on(graph).ends(starts_of(3, 2_000), 1, np.random.default_rng(0))
    np.testing.assert_array_equal(ends, np.ones((3, 2_000)))
    np.testing.assert_array_equal(graph.data, data)


class Fixed:
    """A generator whose walks take one step, with the same uniform number for all."""

    def __init__(self, uniform):
        self.uniform = uniform

    def geometric(self, p, size):
        return np.ones(size, dtype=np.int64)

    def random(self, size):
        return np.full(size, self.uniform)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2.0**-53])
def test_extreme_draws_stay_in_the_row(uniform):
    """Thousands of rows: their number plus nearly one is rounded to the next row's number."""
    n = 5_000
    rng = np.random.default_rng(0)
    targets = (np.arange(n)[:, None] + [1, 2, 3]) % n
    graph = csr_array(
        (rng.random(3 * n) + 1e-3, targets.ravel(), np.arange(0, 3 * n + 1, 3)), shape=(n, n)
    )
    steps = (Walk.on(graph).ends(np.arange(n), 1, Fixed(uniform)) - np.arange(n)) % n
    assert set(steps) <= {1, 2, 3}
    if uniform != 0.5:
        assert set(steps) == {1 if uniform == 0 else 3}


def test_intervals_are_sorted_and_as_long_as_the_edges_are_probable():
    graph = some_graph(3, n=300)
    walk = Walk.on(graph)
    assert np.all(np.diff(walk.cumulative) >= 0)
    lengths = np.diff(walk.cumulative, prepend=0.0)
    P = transitions(graph)
    rows = np.repeat(np.arange(300), np.diff(np.append(-1, walk.last)))
    np.testing.assert_allclose(lengths, P[rows, walk.targets], atol=1e-11)


def test_draws_come_from_the_generator_alone():
    walk, starts = Walk.on(some_graph(0)), np.zeros(100, dtype=int)
    first, again = (walk.ends(starts, 5, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != walk.ends(starts, 5, np.random.default_rng(4)))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)])
def test_ends_have_the_shape_of_starts(shape):
    ends = Walk.on(some_graph(0)).ends(np.zeros(shape, int), 3, np.random.default_rng(0))
    assert ends.shape == shape
    assert ends.dtype == np.int64


@pytest.mark.parametrize("mean_length", [0.99, 0, -1, np.inf, np.nan])
def test_a_mean_length_that_is_none_is_named(mean_length):
    with pytest.raises(ValueError, match=f"at least 1: got {mean_length}"):
        Walk.on(some_graph(0)).ends([0], mean_length, np.random.default_rng(0))


@pytest.mark.parametrize("start", [-1, 12])
def test_a_start_outside_the_graph_is_named(start):
    with pytest.raises(ValueError, match=f"0 to 11: got {start}"):
        Walk.on(some_graph(0)).ends([0, start], 2, np.random.default_rng(0))
