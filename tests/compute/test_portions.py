"""Rows through a network, some at a time."""

import numpy as np
import pytest
import torch

from sklearn_mmdinit._compute import in_portions


@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 3000])
def test_portions_give_what_all_rows_at_once_give(n):
    X = np.random.default_rng(0).normal(size=(n, 2, 3))
    assert np.array_equal(in_portions(lambda rows: torch.from_numpy(rows).sum(1), X), X.sum(1))


def test_no_portion_is_large_and_none_has_gradients():
    weights, seen = torch.ones(3, requires_grad=True), []

    def function(rows):
        seen.append(len(rows))
        return torch.from_numpy(rows) * weights

    result = in_portions(function, np.ones((2500, 3), dtype=np.float32))
    assert result.shape == (2500, 3)
    assert max(seen) <= 1024
    assert sum(seen) == 2500
