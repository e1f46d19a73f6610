"""Calls in processes, and pre-trainings found again."""

import argparse
import os

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend
from sklearn.base import clone

from nets import assert_same_arrays
from protocol.methods import NetworkSettings, initializer_of
from protocol.parallel import results, threads
from protocol.theta0s import learn_all


def _surroundings(number, shared):
    backend = type(get_active_backend()[0]).__name__
    return number, float(shared.sum()), torch.get_num_threads(), backend, os.getpid()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_call_has_one_thread_and_keeps_its_own_calls_to_itself(jobs):
    with threads(2), joblib.parallel_config(backend="loky"):
        found = sorted(results(jobs, _surroundings, [(i, np.ones(3)) for i in range(4)]))
        assert torch.get_num_threads() == 2
    assert [call[:4] for call in found] == [(i, 3.0, 1, "SequentialBackend") for i in range(4)]
    assert (found[0][4] == os.getpid()) == (jobs == 1)


def _failing(number):
    raise ZeroDivisionError(f"cell {number}")


def test_an_error_of_a_cell_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError, match="cell 0"):
        list(results(1, _failing, [(0,)]))


def test_each_pre_training_is_found_under_its_method_and_run(tmp_path):
    X = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    settings = NetworkSettings((4,), epochs=2, n_perturbations=4)
    initializers = {
        (name, run): initializer_of(name, settings, random_state=run)
        for run in (0, 1)
        for name in ("xavier/fcn/ours", "he/fcn+bn/rlabel")
    }
    options = argparse.Namespace(output=tmp_path, quiet=True)
    learned, again = (learn_all(initializers, X, options) for _ in range(2))
    for key, initializer in initializers.items():
        whole = clone(initializer).fit(X)
        assert_same_arrays(learned[key].initializer.theta0_, whole.theta0_)
        assert again[key].seconds == learned[key].seconds  # it is read, not learned
    assert len(list((tmp_path / "theta0").iterdir())) == 4
