"""The display keeps its data, draws them once asked, and needs matplotlib only then."""

import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch import nn

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import coherence_kernel
from sklearn_mmdinit.display import CoherenceDisplay


@pytest.fixture(autouse=True)
def plt():
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_a_display_draws_on_the_given_axes_or_a_new_figure(plt):
    display = CoherenceDisplay(np.eye(4), np.ones((4, 2, 2)))
    before = display.plot().ax_
    assert plt.get_fignums() == [display.figure_.number]
    figure, ax = plt.subplots()
    assert CoherenceDisplay(np.eye(4)).plot(ax).figure_ is figure
    assert plt.get_fignums() == [1, figure.number]
    display.figure_.canvas.draw()  # warnings are errors here too
    assert display.plot() is display
    assert display.ax_ is not before
    assert display.ax_.dataLim.bounds == before.dataLim.bounds


def test_the_error_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"sklearn-mmdinit\[plot\]"):
        CoherenceDisplay(np.eye(4)).plot()


@pytest.fixture(scope="module")
def digits():
    X = load_digits().data[:40] / 16
    return X, MMDInitializer((8,), max_iter=0, random_state=0).fit(X)


def grouped(sizes, inside=0.9, outside=0.1):
    """A kernel of groups, and the group of each input, in a random order."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    group = np.random.default_rng(0).permutation(group)
    kernel = np.where(group[:, None] == group, inside, outside)
    np.fill_diagonal(kernel, 1.0)
    return kernel, group


@pytest.mark.parametrize("sizes", [(5, 5), (7, 3, 9), (4, 4, 4, 4, 4)])
def test_the_order_keeps_groups_together(sizes):
    kernel, group = grouped(sizes)
    order = CoherenceDisplay(kernel).order()
    assert sorted(order) == list(range(len(group)))
    assert (np.diff(group[order]) != 0).sum() == len(sizes) - 1


def test_the_heat_map_shows_the_kernel_in_that_order():
    kernel, _ = grouped((6, 4))
    display = CoherenceDisplay(kernel).plot()
    order = display.order()
    np.testing.assert_allclose(display.ax_.images[0].get_array(), kernel[np.ix_(order, order)])
    assert display.figure_ is display.ax_.figure


def test_images_stand_beside_their_nearest_and_farthest():
    kernel = np.eye(6)
    kernel[0] = kernel[:, 0] = [1.0, 0.2, 0.9, 0.1, 0.5, 0.6]
    images = np.arange(6)[:, None, None] * np.ones((1, 2, 3))
    display = CoherenceDisplay(kernel, images, anchors=[0]).plot(n_shown=2)
    drawn = [float(image.get_array()[0, 0]) for image in display.ax_.images]
    assert drawn == [0, 2, 5, 1, 3]
    assert [text.get_text() for text in display.ax_.texts] == ["0.90", "0.60", "0.20", "0.10"]


@pytest.mark.parametrize("image_shape", [None, (8, 8)])
def test_from_estimator(image_shape, digits, plt):
    X, init = digits
    ax = plt.figure().add_subplot()
    display = CoherenceDisplay.from_estimator(
        init, X, image_shape=image_shape, n_anchors=3, n_shown=4, random_state=0, ax=ax
    )
    assert display.ax_ is ax
    np.testing.assert_array_equal(display.kernel, coherence_kernel(init, X))
    assert len(ax.images) == (1 if image_shape is None else 3 * 9)
    same = CoherenceDisplay.from_estimator(init, X, image_shape=image_shape, random_state=0)
    assert list(same.anchors)[:3] == list(display.anchors)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 1), (8, 8)])
def test_images_of_a_network_that_takes_images(shape, digits):
    X = digits[0].reshape(-1, *shape)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2))
    init = MMDInitializer(module=net, max_iter=0, random_state=0).fit(X)
    display = CoherenceDisplay.from_estimator(init, X, image_shape=(8, 8), random_state=0)
    np.testing.assert_array_equal(display.images, digits[0].reshape(-1, 8, 8))
