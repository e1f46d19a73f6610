"""Edges weighed by shared neighbours."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array

from sklearn_mmdinit._graph import neighbor_graph, shared
from sklearn_mmdinit._graph.shared import weighed_by_shared_neighbors


def random_graph(n=60, seed=0):
    edges = np.random.default_rng(seed).random((n, n)) < 0.1
    np.fill_diagonal(edges, False)
    return edges


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_weights_are_those_counted_one_by_one(power, seed):
    edges = random_graph(seed=seed)
    weighed = weighed_by_shared_neighbors(csr_array(edges.astype(float)), power).toarray()
    for i, j in np.ndindex(edges.shape):
        expected = (1 + (edges[i] & edges[j]).sum()) ** power if edges[i, j] else 0.0
        assert weighed[i, j] == pytest.approx(expected, rel=1e-6)


def test_a_power_of_zero_makes_all_edges_alike():
    graph = csr_array(random_graph() * 7.0)
    assert set(weighed_by_shared_neighbors(graph, 0.0).data) == {1.0}


def test_blocks_change_nothing(monkeypatch):
    graph = csr_array(random_graph().astype(float))
    whole = weighed_by_shared_neighbors(graph, 2.0)
    monkeypatch.setattr(shared, "_NEIGHBORS_AT_A_TIME", 30)
    assert (weighed_by_shared_neighbors(graph, 2.0) != whole).nnz == 0


def test_memory_does_not_grow_with_the_square_of_a_hub():
    n = 3000
    edges = csr_array((np.ones(n - 1), (np.arange(1, n), np.zeros(n - 1, dtype=int))), shape=(n, n))
    tracemalloc.start()
    try:
        weighed_by_shared_neighbors(edges, 2.0)
        # 9 million pairs have the hub in common: 108 MB of them.
        assert tracemalloc.get_traced_memory()[1] < 70e6
    finally:
        tracemalloc.stop()


def test_a_bridge_weighs_less_than_the_edges_of_the_groups_it_joins():
    groups = np.kron(np.eye(2), np.ones((5, 5))) - np.eye(10)
    groups[4, 5] = groups[5, 4] = 1
    weighed = weighed_by_shared_neighbors(csr_array(groups), 2.0).toarray()
    assert weighed[4, 5] == 1
    assert (weighed[:5, :5][groups[:5, :5] > 0] >= 16).all()


def test_work_grows_with_the_edges_and_not_with_the_rows_that_share_a_neighbour(monkeypatch):
    # Half of the rows are equal: their neighbours beyond the ring are the same for all of them.
    X = np.random.default_rng(0).normal(size=(600, 3))
    X[:300] = 0
    graph = neighbor_graph(X, n_neighbors=5)
    looked_at = []

    def watched(sizes):
        looked_at.append(sizes.sum())
        return blocks(sizes)

    blocks = shared._blocks
    monkeypatch.setattr(shared, "_blocks", watched)
    weighed_by_shared_neighbors(graph, 2.0)
    assert looked_at == [2 * 5 * graph.nnz]
    assert graph.sum(axis=0).max() > 250
