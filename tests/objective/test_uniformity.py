"""L_uni: known values, its mean, finite differences."""

import numpy as np
import pytest
import torch

from helpers import normal, uniform_simplex
from sklearn_mmdinit._objective.mmd import ESTIMATORS, median_bandwidth, mmd
from sklearn_mmdinit._objective.mmd_interval import closed_form_mmd, interval_mmd
from sklearn_mmdinit._objective.uniformity import uniformity


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_uniformity_vanishes_for_uniform_predictions(n_classes):
    values = [
        float(
            uniformity(
                uniform_simplex(200, 4, n_classes, seed=seed),
                uniform_simplex(200, n_classes, seed=100 + seed),
            )
        )
        for seed in range(10)
    ]
    point = float(
        uniformity(
            torch.full((200, 4, n_classes), 1 / n_classes, dtype=torch.float64),
            uniform_simplex(200, n_classes),
        )
    )
    # The median of distances between equal laws hardly depends on the sample.
    assert abs(np.mean(values)) < 0.01
    assert point > 1.0


def test_uniformity_takes_the_mean_over_inputs():
    P, U = uniform_simplex(30, 3, 2), uniform_simplex(30, 2, seed=1)
    each = [float(uniformity(P[:, i : i + 1], U)) for i in range(3)]
    assert float(uniformity(P, U)) == pytest.approx(np.mean(each), abs=1e-9)


def test_uniformity_falls_back_where_the_grid_is_too_coarse():
    # Few references among many equal predictions: the median distance is far below what the
    # grid resolves, and the dense form takes over.
    P = torch.full((100, 1, 2), 0.5, dtype=torch.float64)
    P[:, :, 0] += torch.linspace(0, 1e-3, 100, dtype=torch.float64)[:, None]
    P[:, :, 1] = 1 - P[:, :, 0]
    U = uniform_simplex(2, 2)
    gamma = median_bandwidth(P.transpose(0, 1), U)
    assert float(gamma) < 0.01
    expected = float(mmd(P.transpose(0, 1), U, gamma).mean())
    coarse = float(interval_mmd(P[..., 0].mT, U[:, 0], gamma).mean())
    assert abs(coarse - expected) > 1e-2
    # The search for the median ends at float32's resolution, 1e-4 of this bandwidth.
    assert float(uniformity(P, U)) == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", ["biased", "unbiased"])
def test_uniformity_gradient_with_respect_to_logits(n_classes, estimator):
    # Through softmax, as it is used: for two classes the gradient stands on the first alone.
    logits, U = normal(6, 2, n_classes), uniform_simplex(7, n_classes)
    logits.requires_grad_()
    loss = uniformity(logits.softmax(-1), U, estimator)
    (gradient,) = torch.autograd.grad(loss, logits)

    # The bandwidth is a constant of the gradient, so it is held fixed in the differences.
    gamma = median_bandwidth(logits.detach().softmax(-1).transpose(0, 1), U)

    def fixed(x):
        return mmd(x.softmax(-1).transpose(0, 1), U, gamma, estimator).mean()

    step = 1e-5
    for index in np.ndindex(6, 2, n_classes):
        shift = torch.zeros_like(logits)
        shift[index] = step
        with torch.no_grad():
            slope = float(fixed(logits + shift) - fixed(logits - shift)) / (2 * step)
        assert slope == pytest.approx(float(gradient[index]), abs=2e-6)


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
@pytest.mark.parametrize("spread", [0.8, 0.1, 1e-3])
def test_the_closed_form_holds_at_any_bandwidth(estimator, spread):
    # Two references beside 40 predictions that hardly differ: the median is that of the latter.
    generator = torch.Generator().manual_seed(0)
    p = 0.4 + spread * (torch.rand(40, 3, generator=generator, dtype=torch.float64) - 0.5)
    U = torch.tensor([[0.3, 0.7], [0.9, 0.1]], dtype=torch.float64)
    P = torch.stack([p, 1 - p], -1)
    q = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    gamma = median_bandwidth(P.transpose(0, 1), U)
    within, _ = ESTIMATORS[estimator]
    expected = []
    for column, width in zip(p.T, gamma, strict=True):

        def kernel(a, b, width=width):
            widths = width * 2.0 ** torch.arange(-4, 5, dtype=torch.float64)
            squares = 2 * (a[:, None] - b[None, :]).square()
            return sum((squares / (-2 * w * w)).exp() for w in widths).mean()

        # The law itself by its quantiles; of them against each other a few hundred will do.
        middle = kernel(q, (torch.arange(400, dtype=torch.float64) + 0.5) / 400)
        expected.append(within(kernel(column, column), 40) - 2 * kernel(column, q) + middle)
    found = uniformity(P, U, estimator, "closed_form")
    assert float(found) == pytest.approx(np.mean(expected), rel=2e-3)
    assert torch.autograd.gradcheck(
        lambda p: closed_form_mmd(p, gamma, estimator),
        p.mT.contiguous().requires_grad_(),
        eps=1e-4 * spread,
        atol=1e-4 / spread,
        rtol=1e-4,
    )
