"""Draws of pre-training: functions of (seed, step), of the right law."""

import numpy as np
import pytest
import torch
from scipy import stats

from sklearn_mmdinit._random import StepRandom, permutation

# One draw of each kind, in an order that a step could have.
DRAWS = {
    "a few normals": lambda random: random.normal(5, 3),
    "many normals": lambda random: random.normal(300, 300),
    "simplex": lambda random: random.simplex(7, 4),
    "labels": lambda random: random.labels(50, 3),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_draw_is_a_function_of_seed_and_step(draw):
    first = draw(StepRandom(4).at(9))
    moved = StepRandom(4)
    for step in (0, 9, 10):  # whatever was drawn before
        for other in DRAWS.values():
            other(moved.at(step))
    assert torch.equal(draw(moved.at(9)), first)
    assert not torch.equal(draw(moved), first), "the next draw of a step is another one"
    assert not torch.equal(draw(StepRandom(4).at(10)), first)
    assert not torch.equal(draw(StepRandom(5).at(9)), first)


def test_a_new_source_stands_at_step_0():
    assert torch.equal(StepRandom(4).normal(6), StepRandom(4).at(0).normal(6))


def test_steps_beyond_32_bits_are_steps_of_their_own():
    draws = {tuple(StepRandom(0).at(step).normal(4).tolist()) for step in (0, 1, 1 << 31, 1 << 32)}
    assert len(draws) == 4


def test_draws_do_not_depend_on_the_number_of_threads():
    n_threads, draws = torch.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            draws.append(StepRandom(4).normal(300, 300).clone())
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("n", [20, 100_000])
def test_reserved_normals_are_those_of_one_fresh_draw(n):
    fresh = StepRandom(4).at(2).normal(n)
    random = StepRandom(4).at(2)
    random.reserve(n)
    parts = [random.normal(3, 2), random.normal(4), random.normal(n - 10)]
    assert [part.shape for part in parts] == [(3, 2), (4,), (n - 10,)]
    assert torch.equal(torch.cat([part.flatten() for part in parts]), fresh)


def test_what_was_not_reserved_is_drawn_after_it():
    random = StepRandom(4).at(2)
    random.reserve(10)
    random.normal(8)
    beyond = random.normal(5)  # more than the two that are left
    left = random.normal(2)
    fresh = StepRandom(4).at(2)
    assert torch.equal(fresh.normal(10)[8:], left)
    assert torch.equal(fresh.normal(5), beyond)


def test_a_reserve_ends_with_its_step_and_is_made_anew():
    random = StepRandom(4)
    random.reserve(30)
    random.normal(3)
    first = random.at(1).normal(10)
    assert torch.equal(first, StepRandom(4).at(1).normal(10))
    random.at(2).reserve(12)  # in a block that was larger
    assert torch.equal(random.normal(12), StepRandom(4).at(2).normal(12))


def test_dtype():
    random = StepRandom(4, dtype=torch.float64)
    assert random.normal(3).dtype == random.simplex(3, 2).dtype == torch.float64
    random.reserve(3)
    assert random.normal(3).dtype == torch.float64
    assert StepRandom(4).normal(3).dtype == torch.float32


def test_global_generator_is_left_alone():
    before = torch.random.get_rng_state()
    for draw in DRAWS.values():
        draw(StepRandom(0))
    assert torch.equal(torch.random.get_rng_state(), before)


# laws: the seeds are fixed, so that a test that passes once passes always


@pytest.mark.parametrize("seed", range(3))
def test_normals_are_standard_and_independent(seed):
    random = StepRandom(seed)
    steps = [random.at(step).normal(100_000).double().numpy() for step in range(2)]
    for draw in steps:
        assert stats.kstest(draw, "norm").pvalue > 1e-3
        # Parts of a large draw come from streams of their own.
        quarters = draw.reshape(4, -1)
        off_diagonal = np.corrcoef(quarters)[np.triu_indices(4, 1)]
        assert np.abs(off_diagonal).max() < 4 / np.sqrt(25_000)
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 4 / np.sqrt(100_000)
    assert abs(np.corrcoef(steps)[0, 1]) < 4 / np.sqrt(100_000)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_simplex_draws_are_uniform(n_classes):
    n, d = 50_000, n_classes
    U = StepRandom(1).simplex(n, d).double().numpy()
    assert U.min() >= 0
    np.testing.assert_allclose(U.sum(axis=1), 1, atol=1e-6)
    # Dirichlet(1, ..., 1): mean 1/d, covariance (I/d - 1/d^2) / (d + 1), Beta(1, d-1) marginals.
    np.testing.assert_allclose(U.mean(axis=0), 1 / d, atol=5 / (d * np.sqrt(n)))
    covariance = (np.eye(d) / d - 1 / d**2) / (d + 1)
    np.testing.assert_allclose(np.cov(U.T), covariance, atol=5 / (d * np.sqrt(n)) / d)
    for column in U.T:
        assert stats.kstest(column, stats.beta(1, d - 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("n_classes", [2, 5])
def test_labels_are_uniform(n_classes):
    labels = StepRandom(2).labels(20_000, n_classes)
    assert labels.dtype == torch.int64
    counts = np.bincount(labels.numpy(), minlength=n_classes)
    assert len(counts) == n_classes
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_permutation_visits_every_row_once_a_pass_in_another_order():
    orders = [permutation(3, epoch, 40) for epoch in range(5)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(40))
    assert len({tuple(order) for order in orders}) == 5
    np.testing.assert_array_equal(permutation(3, 2, 40), orders[2])
    assert not np.array_equal(permutation(4, 2, 40), orders[2])


def test_permutations_are_uniform():
    firsts = np.bincount([permutation(0, epoch, 6)[0] for epoch in range(1200)], minlength=6)
    assert stats.chisquare(firsts).pvalue > 1e-3
