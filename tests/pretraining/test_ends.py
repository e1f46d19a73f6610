"""How a pre-training ends: predictions that are not finite, and an early stop or none."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit._objective.mmd_interval import _stencil

X = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)


def tiny(**params):
    own = {"n_perturbations": 8, "max_iter": 1, "window": 2, "batch_size": 16, "random_state": 0}
    return MMDInitializer((8, 8), **{**own, **params})


@pytest.mark.parametrize("reference", ["sampled", "closed_form"])
def test_predictions_that_are_not_finite_leave_the_best_window(reference):
    init = tiny(reference=reference).fit(X)
    init.set_params(learning_rate_init=1e20)
    with pytest.warns(ConvergenceWarning, match="not finite"):
        init.partial_fit(X)
    assert all(np.isfinite(array).all() for array in init.theta0_.arrays.values())
    with pytest.raises(ValueError, match="not finite"):
        tiny(reference=reference, learning_rate_init=1e20).fit(X)


def test_nan_has_a_place_on_the_grid_and_weights_that_tell():
    q = torch.tensor([0.25, float("nan"), 1.0], dtype=torch.float64)
    nodes, weights, slopes = _stencil(q)
    finite = _stencil(q[[0, 2]])
    for found, own in zip((nodes, weights, slopes), finite, strict=True):
        assert torch.equal(found[[0, 2]], own)
    assert int(nodes.min()) >= 0
    assert torch.isnan(weights[1]).any()


def test_a_pass_that_is_asked_for_is_made_to_its_end():
    init = tiny(tol=1e9, n_iter_no_change=1, window=1)
    free = tiny(window=1)
    for number in range(1, 4):
        init.partial_fit(X)
        free.partial_fit(X)
        assert (init.n_iter_, init.history_[-1]["step"]) == (number, 4 * number)
    assert init.history_ == free.history_
    assert len(tiny(tol=1e9, n_iter_no_change=1, window=1, max_iter=9).fit(X).history_) == 2
