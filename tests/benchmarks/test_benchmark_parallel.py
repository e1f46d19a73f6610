"""Calls in processes."""

import os

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import get_active_backend

from protocol.parallel import results, threads


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
