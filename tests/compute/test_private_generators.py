"""Global generators that are seeded for a while."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from sklearn_mmdinit import MMDInitializer, NetClassifier, mmd_init_
from sklearn_mmdinit._compute import seeded_generators


def test_draws_follow_the_seed_and_leave_no_trace():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    draws = []
    for _ in range(2):
        with seeded_generators(7):
            draws.append(torch.rand(2))
    assert torch.equal(*draws)
    assert torch.equal(torch.rand(3), expected)
    with pytest.raises(ZeroDivisionError), seeded_generators(7):
        raise ZeroDivisionError
    assert torch.equal(draws[0], torch.rand(2, generator=torch.Generator().manual_seed(7)))


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(6, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))


def test_generators_of_devices_that_are_not_used_are_left_alone(monkeypatch):
    def seeded(seed):
        raise AssertionError("a seed for all devices")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded)
    X = np.random.default_rng(0).normal(size=(16, 6)).astype("float32")
    NetClassifier(Net, max_iter=1, random_state=0, device="cpu").fit(X, np.arange(16) % 2)
    MMDInitializer(
        module=Net, n_perturbations=2, batch_size=8, max_iter=1, random_state=0, device="cpu"
    ).fit(X)
    data = TensorDataset(torch.from_numpy(X))
    mmd_init_(Net(), data, n_perturbations=2, batch_size=8, max_iter=1, device="cpu")
