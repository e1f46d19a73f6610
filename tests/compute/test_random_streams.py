"""Draws of pre-training: functions of (seed, step), of the right law."""

import numpy as np
import pytest
import torch
from scipy import stats

from sklearn_mmdinit._compute import StepRandom, permutation

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


def test_normals_in_a_given_tensor():
    out = torch.empty(5, 3)
    assert StepRandom(4).at(2).normal(5, 3, out=out) is out
    assert torch.equal(out, StepRandom(4).at(2).normal(5, 3))


def test_the_parts_of_a_step_are_functions_of_seed_step_and_number():
    random = StepRandom(4).at(2)
    parts = [part.normal(50) for part in random.split(4)]
    whole = random.normal(50)
    assert len({tuple(draw.tolist()) for draw in [whole, *parts]}) == 5
    again = StepRandom(4).at(7)
    again.split(5)[1].normal(9)  # whatever was drawn before
    for i, part in reversed(list(enumerate(again.at(2).split(4)))):
        assert torch.equal(part.normal(50), parts[i])
    assert not torch.equal(again.at(3).split(4)[0].normal(50), parts[0])
    assert torch.equal(again.at(2).normal(50), whole)


def test_one_part_is_the_source_itself():
    random = StepRandom(4)
    assert random.split(1) == [random]


def test_dtype():
    random = StepRandom(4, dtype=torch.float64)
    assert random.normal(3).dtype == random.simplex(3, 2).dtype == torch.float64
    assert random.split(2)[1].normal(3).dtype == torch.float64
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
    n = 100_000
    draws = [random.at(step).normal(n) for step in range(2)]
    draws += [part.normal(n) for part in random.split(3)]
    arrays = [draw.double().numpy() for draw in draws]
    for draw in arrays:
        assert stats.kstest(draw, "norm").pvalue > 1e-3
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 4 / np.sqrt(n)
    # Steps and the parts of one do not know of each other.
    assert np.abs(np.corrcoef(arrays) - np.eye(len(arrays))).max() < 4 / np.sqrt(n)


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
