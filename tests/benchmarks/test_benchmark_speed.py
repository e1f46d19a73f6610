"""The figures of speed: what is compared agrees, what is counted is right. No time is asserted."""

import os
from functools import partial

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend

import speed
from protocol.parallel import results, threads
from reporting.tables import build_table
from results_stand_in import status_of, written
from timing import memory
from timing.steps import Product, Step, in_turns, products_of_step
from timing.textbook import FORMS, TextbookStep, textbook_loss

TINY = Step(16, (8, 6), n_perturbations=6, batch_size=4)
SMALL = Step(16, (12, 12), n_perturbations=64, batch_size=4)


@pytest.fixture(autouse=True)
def _one_thread():
    with threads(1):
        yield


# What is compared agrees, and a difference is seen


def apart(step, repetitions=8, n_steps=2, **parameters):
    """Standard errors by which mean losses, or weights at the end, differ at most, over starts.

    Library and textbook take the same rows, so that they agree in the mean over noise.
    """
    X = step.rows(step.batch_size, seed=1)
    losses, weights = [], []
    for seed in range(repetitions):
        start = step.start(X, random_state=seed).to_module().parameters()
        form = TextbookStep(start, step.n_perturbations, learning_rate=3e-3, seed=seed)
        textbook = [form(torch.from_numpy(X)) for _ in range(n_steps)]
        parameters |= {"learning_rate_init": 3e-3, "max_iter": n_steps, "random_state": seed}
        library = step.initializer(**parameters).fit(X)
        # Its curve is of one window, not a whole one.
        losses.append(np.mean(textbook) - np.array(library.loss_curve_))
        pairs = zip(form.network, library.to_module().parameters(), strict=True)
        weights.append(torch.cat([(a - b).detach().ravel() for a, b in pairs]).numpy())
    return max(
        float((abs(d.mean(0)) / np.sqrt(np.maximum(d.var(0, ddof=1) / len(d), 1e-30))).max())
        for d in map(np.stack, (losses, weights))
    )


def test_learning_agrees_and_another_objective_or_law_is_noticed():
    most = 6.0  # that the largest of some hundred differences may reach
    assert apart(SMALL, n_steps=20) < most
    wrong = {"uniformity_weight": 40, "degeneracy_weight": 8, "detachment_weight": 8}
    for name, repetitions in wrong.items():
        assert apart(SMALL, repetitions, **{name: 4.0}) > most
    assert apart(SMALL, perturbation_scale=0.3) > most


def test_the_textbook_loss_of_a_case_worked_out_by_hand():
    """Without noise all networks agree: p = 1/2 everywhere, from weights that are 0."""
    network = [torch.zeros(2, 3).double().requires_grad_(), torch.zeros(2).double()]
    copies = [w.expand(4, *w.shape) for w in network]
    U = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    X = torch.ones(5, 3, dtype=torch.float64)
    # Pairs: 6 at distance 0, 8 at 1/sqrt 2, 1 at sqrt 2; the median of 15 is the 8th.
    squares = (0.5 * 4.0 ** -np.arange(-4, 5)[:, None] * np.array([0, 0.5, 2]) / 0.5).T
    within_p, between, within_u = np.exp(-squares).sum(1)
    # Distances to both vertices are 1/sqrt 2, the threshold; Jacobian rows are 0.
    expected = within_p - 2 * between + within_u + 0.4 * 0 + 1.0
    for form in FORMS:
        loss = textbook_loss(network, X, copies, U, form)
        assert float(loss.detach()) == pytest.approx(expected)


def test_both_textbook_forms_take_the_same_steps():
    X = TINY.rows(4)
    weights = list(TINY.start(X).to_module().parameters())
    forms = [TextbookStep(weights, 16, form, learning_rate=3e-3) for form in FORMS]
    losses = np.array([[step(torch.from_numpy(X)) for _ in range(40)] for step in forms])
    np.testing.assert_allclose(*losses, rtol=1e-3)
    assert losses[0, -5:].mean() < losses[0, :5].mean()


# What is counted and measured


def test_products_of_a_case_worked_out_by_hand():
    def flops(sampler):
        class Sampled(Step):
            def start(self, X):
                fitted = super().start(X)
                fitted.sampler_ = sampler
                return fitted

        step = Sampled(5, (3,), n_perturbations=7, batch_size=4)
        return sum(product.flops for product in products_of_step(step))

    # 5-3-2, B = 4, K = 7. First layer: W and its gradient 4x5x3, H H' 4x5x4, L Z 7x4x4x3.
    first = 60 + 80 + 7 * 48 + 60
    # Second, all for 7 networks: three by W 4x3x2; H H', inner H 4x3x4; L Z, G Z' 4x2x4; 4x4x4.
    assert flops("gram") == 2 * (first + 7 * (3 * 24 + 2 * 48 + 2 * 32 + 64))
    # W + E once forward, once to the inputs, which all share in the first, and the gradient of W.
    assert flops("functional") == 2 * (7 * 60 + 60 + 7 * 3 * 24)
    assert Product(2, 3, 5, 7).flops == 2 * 2 * 3 * 5 * 7


def surroundings(number, shared):
    backend = type(get_active_backend()[0]).__name__
    return number, float(shared.sum()), torch.get_num_threads(), backend, os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_call_has_one_thread_and_keeps_its_own_calls_to_itself(jobs):
    with threads(2), joblib.parallel_config(backend="loky"):
        found = sorted(results(jobs, surroundings, [(i, np.ones(3)) for i in range(4)]))
        assert torch.get_num_threads() == 2
    assert [call[:4] for call in found] == [(i, 3.0, 1, "SequentialBackend") for i in range(4)]
    assert (found[0][4] == os.getpid()) == (jobs == 1)


def test_measures_are_taken_in_turns():
    asked, seconds = [], {"a": [1.0, 2.0, 9.0], "b": [4.0, 4.0, 6.0]}

    def measure(name):
        asked.append(name)
        return seconds[name][asked.count(name) - 1]

    times = in_turns({name: partial(measure, name) for name in "ab"}, 3)
    assert asked == [*"ababab"]
    assert times["a"] == {"median": 2.0, "minimum": 1.0, "seconds": seconds["a"]}


def test_memory_is_that_of_the_action_alone():
    before = np.ones(40 << 17)  # 40 MiB that are there already
    assert 50 << 20 < memory.grown_by(lambda: np.ones(60 << 17)) < 80 << 20
    assert before[0] == 1


def test_memory_of_a_step_is_measured_in_a_process_of_its_own():
    assert 0 <= memory.measure_peak(TINY)["peak"] < 200 << 20


def test_a_whole_fit_is_measured_in_a_process_of_its_own():
    fit = memory.measure_fit(60, 20)
    assert fit["seconds"] > 0.0
    results = {"coherent_fits": [fit], "device": "cpu", "threads": 1}
    assert build_table("coherent_fits", results).rows[0][:2] == ["60", "20"]


# The commands


def test_the_command_writes_figures_with_their_origin(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(speed, "PAPER", TINY)
    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(speed, "measure_peak", lambda step, form: {"form": form, "peak": 1 << 20})
    assert status_of(speed, ["--sections", "step", "--output", tmp_path]) == 0
    found = written(tmp_path)
    assert {"hardware", "git_commit", "versions", "threads"} <= set(found)
    assert set(found["step"]["seconds"]) == {"floor", "library", "direct", "vmap"}
    assert [record["form"] for record in found["memory"]] == ["library", "direct", "vmap"]
    assert "Peak memory of pre-training" in capsys.readouterr().out
