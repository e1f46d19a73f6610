"""Which rows a step looks at, and at what learning rate."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from sklearn_mmdinit._graph import Walk
from sklearn_mmdinit._pretraining import Schedule, WalkBatches
from sklearn_mmdinit._pretraining.batches import RowBatches
from sklearn_mmdinit._pretraining.feeds import _portions

N = 40


@pytest.fixture
def walks():
    # Two rings of twenty rows.
    ring = np.roll(np.eye(N // 2), 1, axis=1)
    return WalkBatches(5, Walk.on(csr_array(np.kron(np.eye(2), ring))), 3.0, seed=7)


def test_rows_are_taken_in_their_order():
    order = np.arange(12)[::-1]
    rows = RowBatches(4).rows(order, first_step=9)
    assert rows.tolist() == [[11, 10, 9, 8], [7, 6, 5, 4], [3, 2, 1, 0]]
    assert RowBatches(4).n_rows == 4


def test_starts_come_first_and_ends_stay_in_their_component(walks):
    order = np.random.default_rng(0).permutation(N)
    rows = walks.rows(order, first_step=0)
    assert rows.shape == (8, walks.n_rows) == (8, 10)
    np.testing.assert_array_equal(rows[:, :5].ravel(), order)
    np.testing.assert_array_equal(rows[:, :5] // 20, rows[:, 5:] // 20)
    assert (rows[:, :5] != rows[:, 5:]).mean() > 0.8


def test_walks_follow_from_seed_and_step_alone(walks):
    order = np.random.default_rng(0).permutation(N)
    whole = walks.rows(order, first_step=3)
    parts = [walks.rows(order[:10], 3), walks.rows(order[10:], 5)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (walks.rows(order, first_step=4) != whole).any()


def test_gathered_mini_batches_take_little_memory(walks):
    assert RowBatches(4).n_steps(784) is None
    assert walks.n_steps(10**9) == 1
    assert walks.n_steps(784) * walks.n_rows * 784 <= 1 << 24


@pytest.mark.parametrize("step", [0, 3, 10])
@pytest.mark.parametrize("most", [None, 1, 4, 50])
@pytest.mark.parametrize("window", [1, 5, 100])
def test_portions_cover_a_pass_and_end_where_windows_do(window, most, step):
    portions = list(_portions(23, step, window, most))
    covered = [first + i for first, n_steps in portions for i in range(n_steps)]
    assert covered == list(range(23))
    for first, n_steps in portions:
        assert n_steps <= min(window, most or window)
        # No portion goes on beyond the end of a window.
        assert (step + first) // window == (step + first + n_steps - 1) // window


def schedule(**params):
    return Schedule(0.1, window=5, tol=None, n_iter_no_change=1, **params)


def test_a_constant_rate_is_never_set():
    assert schedule().rates(0, 1, range(5), 10) is None


def test_the_cosine_falls_from_all_to_two_per_cent_over_the_passes():
    cosine = schedule(learning_rate="cosine")
    rates = np.concatenate([cosine.rates(i, 3, range(40), 40) for i in range(3)])
    assert rates[0] == pytest.approx(0.1)
    assert rates[60] == pytest.approx(0.1 * 0.51)
    assert rates[-1] == pytest.approx(0.1 * 0.02, rel=0.05)
    assert (np.diff(rates) < 0).all()
    # Passes beyond the last one go on at what is left.
    np.testing.assert_allclose(cosine.rates(3, 3, range(2), 40), 0.1 * 0.02)
    # Portions of a pass are parts of it.
    np.testing.assert_allclose(cosine.rates(1, 3, range(10, 15), 40), rates[50:55])
