"""What is learned with is given back."""

import gc

import numpy as np
import pytest
import torch

from sklearn_mmdinit import Coherence, MMDInitializer, RandomLabelInitializer

X = np.random.default_rng(0).normal(size=(64, 10))


def live_numbers():
    """Numbers in all tensors of this process."""
    gc.collect()
    return sum(thing.numel() for thing in gc.get_objects() if type(thing) is torch.Tensor)


def growth(learn, times=3):
    """Numbers that each time leaves behind, after a first one."""
    learn()
    before = live_numbers()
    for _ in range(times):
        learn()
    return (live_numbers() - before) / times


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"batch_norm": True},
        {"activation": "tanh", "sampler": "direct"},
        {"sampler": "gram", "n_classes": 3},
        {"coherence": Coherence(batch_size=20, n_neighbors=5)},
    ],
    ids=str,
)
def test_fits_and_passes_leave_nothing_behind(params):
    init = MMDInitializer((30, 20), n_perturbations=16, max_iter=1, random_state=0, **params)
    assert growth(lambda: init.fit(X)) < 100, "one step's activations are 16 times 32 times 52"
    assert growth(lambda: init.partial_fit(X)) < 100
    assert growth(lambda: init.score(X)) < 100


def test_fits_that_fail_leave_nothing_behind(monkeypatch):
    init = MMDInitializer((30, 20), n_perturbations=16, max_iter=1, random_state=0)

    def learn():
        with pytest.raises(ValueError, match="not finite"):
            init.set_params(learning_rate_init=1e30).fit(X)

    assert growth(learn) < 100


def test_the_baseline_leaves_nothing_behind():
    init = RandomLabelInitializer((30, 20), max_iter=1, random_state=0)
    assert growth(lambda: init.fit(X)) < 100
