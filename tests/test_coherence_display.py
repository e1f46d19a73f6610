"""What the coherence kernel looks like."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
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


def test_of_a_few_inputs_none_is_shown_twice(digits):
    X, init = digits
    display = CoherenceDisplay.from_estimator(init, X[:4], image_shape=(8, 8), random_state=0)
    assert len(display.ax_.images) == 4 * 3


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CoherenceDisplay(np.ones((2, 3))), "kernel must have shape"),
        (lambda: CoherenceDisplay([[1.0, 0.5], [0.1, 1.0]]), "symmetric"),
        (lambda: CoherenceDisplay(np.eye(2), np.ones((3, 2, 2))), "images must have shape"),
        (lambda: CoherenceDisplay(np.eye(2), np.ones((2, 2, 2)), anchors=[5]), r"anchors.*\[5\]"),
        (lambda: CoherenceDisplay(np.eye(2), np.ones((2, 2, 2)), anchors=[0.5]), "anchors.*0.5"),
        (lambda: CoherenceDisplay(np.eye(2), np.ones((2, 2, 2)), anchors=[True]), "anchors.*True"),
    ],
)
def test_what_does_not_fit_is_named(make, match):
    with pytest.raises(ValueError, match=match):
        make().plot()


def test_rows_that_are_no_images_are_named(digits):
    X, init = digits
    with pytest.raises(ValueError, match=r"image_shape=\(7, 9\) does not fit"):
        CoherenceDisplay.from_estimator(init, X, image_shape=(7, 9))


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8, 1), (8, 8), (64,)])
def test_images_of_a_network_that_takes_images(shape, digits):
    X = digits[0].reshape(-1, *shape)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 2))
    init = MMDInitializer(module=net, max_iter=0, random_state=0).fit(X)
    display = CoherenceDisplay.from_estimator(init, X, image_shape=(8, 8), random_state=0)
    np.testing.assert_array_equal(display.images, digits[0].reshape(-1, 8, 8))
    with pytest.raises(ValueError, match=r"image_shape=\(4, 16\)" if len(shape) > 1 else "7, 9"):
        CoherenceDisplay.from_estimator(init, X, image_shape=(4, 16) if len(shape) > 1 else (7, 9))


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"n_anchors": 0}, ValueError, "n_anchors == 0, must be >= 1"),
        ({"n_anchors": 1.5}, TypeError, "n_anchors must be an instance of int"),
        ({"n_shown": -1}, ValueError, "n_shown == -1, must be >= 1"),
        ({"n_shown": 1.5}, TypeError, "n_shown must be an instance of int"),
        ({"image_shape": 64}, ValueError, "image_shape must be None or a height and a width"),
        ({"image_shape": "ab"}, ValueError, "image_shape must be None or a height and a width"),
        ({"image_shape": (1, 8, 8)}, ValueError, r"positive integers: got \(1, 8, 8\)"),
        ({"image_shape": (-8, -8)}, ValueError, r"positive integers: got \(-8, -8\)"),
        ({"X": csr_array(np.eye(64))}, TypeError, "X must be dense, got csr_array"),
    ],
)
def test_what_is_not_valid_is_named(params, error, match, digits):
    X, init = digits
    with pytest.raises(error, match=match):
        CoherenceDisplay.from_estimator(init, **{"X": X, "image_shape": (8, 8)} | params)


def test_two_images_are_too_few(digits):
    X, init = digits
    with pytest.raises(ValueError, match="give three or more"):
        CoherenceDisplay.from_estimator(init, X[:2], image_shape=(8, 8))
    display = CoherenceDisplay.from_estimator(init, X[:3], image_shape=(8, 8))
    assert len(display.ax_.texts) == 3 * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tensors_will_do(dtype, digits):
    X, init = digits
    rows = torch.tensor(X, dtype=dtype, requires_grad=True)
    display = CoherenceDisplay.from_estimator(init, rows, image_shape=(8, 8), random_state=0)
    expected = coherence_kernel(init, rows.detach().float().numpy())
    np.testing.assert_array_equal(display.kernel, expected)


def test_columns_of_a_table_go_by_their_names(digits):
    frame = load_digits(as_frame=True).data[:40] / 16
    init = MMDInitializer((8,), max_iter=0, random_state=0).fit(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        CoherenceDisplay.from_estimator(init, frame[frame.columns[::-1]])
