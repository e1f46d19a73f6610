"""Random streams, threads, functions in parts, float32, and failures taken back."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy import stats

from helpers import LARGE, SMALL, as_a_team_of, normal, threads
from sklearn_mmdinit import (
    Coherence,
    MLPClassifier,
    MMDInitializer,
    OrientedGradients,
    RandomAffine,
)
from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit._base.threads import chunked, run_on_threads, team, worthwhile_threads

# Draws of pre-training are functions of seed and step

# One draw of each kind, in an order that a step could have.
DRAWS = {
    "a few normals": lambda random: random.normal(5, 3),
    "many normals": lambda random: random.normal(300, 300),
    "simplex": lambda random: random.simplex(7, 4),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_draw_is_a_function_of_seed_and_step(draw):
    before = torch.random.get_rng_state()
    first = draw(StepRandom(4).at(9))
    moved = StepRandom(4)
    for step in (0, 9, 10, 1 << 31):  # whatever was drawn before
        for other in DRAWS.values():
            other(moved.at(step))
    assert torch.equal(draw(moved.at(9)), first)
    assert not torch.equal(draw(moved), first), "the next draw of a step is another one"
    for step in (10, 9 + (1 << 32)):  # steps beyond 32 bits are steps of their own
        assert not torch.equal(draw(StepRandom(4).at(step)), first)
    assert not torch.equal(draw(StepRandom(5).at(9)), first)
    assert torch.equal(torch.random.get_rng_state(), before), "no trace in the global generator"


def test_the_parts_of_a_step_are_functions_of_seed_step_and_number():
    random = StepRandom(4).at(2)
    assert random.split(1) == [random]
    parts = [part.normal(50) for part in random.split(4)]
    whole = random.normal(50)
    assert len({tuple(draw.tolist()) for draw in [whole, *parts]}) == 5
    again = StepRandom(4).at(7)
    again.split(5)[1].normal(9)  # whatever was drawn before
    for i, part in reversed(list(enumerate(again.at(2).split(4)))):
        assert torch.equal(part.normal(50), parts[i])
    assert not torch.equal(again.at(3).split(4)[0].normal(50), parts[0])
    assert torch.equal(again.at(2).normal(50), whole)


# Their laws: the seeds are fixed, so that a test that passes once passes always.


def test_normals_are_standard_and_independent():
    random, n = StepRandom(0), 100_000
    draws = [random.at(step).normal(n) for step in range(2)]
    draws += [part.normal(n) for part in random.split(3)]
    arrays = [draw.double().numpy() for draw in draws]
    for draw in arrays:
        assert stats.kstest(draw, "norm").pvalue > 1e-3
        assert abs(np.corrcoef(draw[:-1], draw[1:])[0, 1]) < 4 / np.sqrt(n)
    # Steps and the parts of one do not know of each other.
    assert np.abs(np.corrcoef(arrays) - np.eye(len(arrays))).max() < 4 / np.sqrt(n)


@pytest.mark.parametrize("d", [2, 3, 10])
def test_simplex_draws_are_uniform(d):
    n = 50_000
    U = StepRandom(1).simplex(n, d).double().numpy()
    assert U.min() >= 0
    np.testing.assert_allclose(U.sum(axis=1), 1, atol=1e-6)
    # Dirichlet(1, ..., 1): mean 1/d, covariance (I/d - 1/d^2) / (d + 1), Beta(1, d-1) marginals.
    np.testing.assert_allclose(U.mean(axis=0), 1 / d, atol=5 / (d * np.sqrt(n)))
    covariance = (np.eye(d) / d - 1 / d**2) / (d + 1)
    np.testing.assert_allclose(np.cov(U.T), covariance, atol=5 / (d * np.sqrt(n)) / d)
    for column in U.T:
        assert stats.kstest(column, stats.beta(1, d - 1).cdf).pvalue > 1e-3


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_is_heard_after_all_have_ended(place):
    ended = []

    def work(start, stop):
        if start == place:
            raise ValueError("of this stretch")
        ended.append(start)

    with as_a_team_of(3):
        with pytest.raises(ValueError, match="of this stretch"):
            run_on_threads(3, work)
        assert sorted([*ended, place]) == [0, 1, 2]
        assert len(run_on_threads(3, lambda start, stop: None)) == 3, "and the team goes on"


def n_stretches():
    return len(run_on_threads(5, lambda start, stop: None))


def test_a_team_has_large_products_on_the_cpu_and_leaves_settings_alone():
    def settings(start, stop):
        return torch.get_num_threads(), torch.is_grad_enabled()

    with threads(3):
        assert n_stretches() == 1, "outside a team the caller does it all"
        with team(LARGE), ThreadPoolExecutor(1) as other:
            assert run_on_threads(3, settings) == [(1, False)] * 3
            assert len(run_on_threads(2, settings)) == 2, "no thread without an item"
            assert settings(0, 0) == (1, True)
            assert other.submit(n_stretches).result() == 1, "a thread of the user's own is no part"
        with pytest.raises(KeyError), team(LARGE):
            raise KeyError
        assert torch.get_num_threads() == 3
        assert n_stretches() == 1, "the team has ended"
        # Small products are not worth a second thread.
        for n_multiplications, expected in ((SMALL, 1), (LARGE, 3)):
            with worthwhile_threads(n_multiplications):
                assert torch.get_num_threads() == expected
            with team(n_multiplications):
                assert n_stretches() == expected


def test_threads_born_beside_fits_begin_with_the_number_of_the_process():
    inside = threading.Barrier(3)

    def number_in_a_new_thread():
        with ThreadPoolExecutor(1) as new_thread:
            return new_thread.submit(torch.get_num_threads).result()

    def fit(may_end):
        with worthwhile_threads(SMALL):
            inside.wait(60)
            may_end.wait(60)
            within = torch.get_num_threads()
        return within, torch.get_num_threads()

    with threads(2), ThreadPoolExecutor(2) as pool:
        events = [threading.Event() for _ in range(2)]
        fits = [pool.submit(fit, may_end) for may_end in events]
        inside.wait(60)
        assert number_in_a_new_thread() == 2
        for may_end, fitted in zip(events, fits, strict=True):  # the first one in leaves first
            may_end.set()
            assert fitted.result() == (1, 2)
            assert number_in_a_new_thread() == 2
    with as_a_team_of(3):
        all_begun = threading.Barrier(3)
        run_on_threads(3, lambda start, stop: all_begun.wait(60))
        assert number_in_a_new_thread() == 3, "only the team's own threads have one each"


AT_EDGES = Coherence(embedding=OrientedGradients(), augmentation=RandomAffine(), n_neighbors=3)


def initializer(**params):
    return MMDInitializer((8,), n_perturbations=8, max_iter=1, random_state=0, **params)


def classifier(**params):
    return MLPClassifier((8,), max_iter=1, random_state=0, **params)


UNDER_AUTOCAST = {
    "fit": lambda X, y: initializer().fit(X).coefs_[0],
    "coherence": lambda X, y: initializer(coherence=AT_EDGES).fit(X).coefs_[0],
    "score": lambda X, y: initializer().fit(X).score(X),
    "transform": lambda X, y: initializer().fit_transform(X),
    "classifier": lambda X, y: classifier().fit(X, y).predict_proba(X),
}


@pytest.mark.parametrize("call", UNDER_AUTOCAST.values(), ids=UNDER_AUTOCAST)
def test_estimators_compute_in_single_precision_under_autocast(call):
    X = normal(60, 64).float().numpy()
    y = (X[:, 0] > 0).astype(int)
    expected = call(X, y)
    with torch.autocast("cpu", torch.bfloat16):
        found = call(X, y)
        assert torch.is_autocast_enabled("cpu"), "the caller's setting stays"
    np.testing.assert_array_equal(found, expected)


def test_a_tensor_changed_before_its_gradient_is_noticed():
    a = normal(3).requires_grad_()
    result = chunked(lambda i: (a * i).exp()[:1], 4, [a])
    with torch.no_grad():
        a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(result.sum())


@pytest.mark.parametrize("n", [1, 3, 50])
def test_a_row_in_other_company_differs_by_rounding_alone(n):
    X = np.random.default_rng(0).normal(size=(600, 30))
    clf = MLPClassifier((64, 64), max_iter=2, random_state=0).fit(X, np.arange(600) % 3)
    init = MMDInitializer((64, 64), max_iter=0, random_state=0).fit(X)
    for function in (clf.predict_proba, init.transform):
        together = function(X)
        apart = np.concatenate([function(X[i : i + n]) for i in range(0, 600, n)])
        assert np.abs(apart - together).max() <= 1e-5 * np.abs(together).max()
