"""Displays keep their data, draw them once asked, and need matplotlib only then."""

import sys

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits
from torch import nn

from sklearn_mmdinit import MMDInitializer
from sklearn_mmdinit.diagnostics import coherence_kernel
from sklearn_mmdinit.display import (
    CoherenceDisplay,
    LossCurveDisplay,
    PredictionDensityDisplay,
)

HISTORY = [
    {"step": 100, "loss": 0.9, "uniformity": 0.5, "degeneracy": 0.4},
    {"step": 200, "loss": 0.6, "uniformity": 0.3, "degeneracy": 0.3},
    {"step": 250, "loss": 0.5, "uniformity": 0.2, "degeneracy": 0.2},
]

NAMES = ["loss", "density", "coherence"]
LEARNED = MMDInitializer()
LEARNED.history_ = HISTORY


@pytest.fixture(autouse=True)
def plt():
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture
def predictions():
    """(n_perturbations, n_inputs, n_classes), each input at a mean of its own."""
    rng = np.random.default_rng(0)
    first = np.clip(rng.normal(np.linspace(0.2, 0.8, 5), 0.05, (300, 5)), 0.0, 1.0)
    return np.stack([first, 1.0 - first], axis=2)


def draw(name, predictions, ax=None):
    return {
        "loss": lambda: LossCurveDisplay.from_estimator(LEARNED, ax=ax),
        "density": lambda: PredictionDensityDisplay.from_predictions(
            predictions, max_panels=1, ax=None if ax is None else [ax]
        ),
        "coherence": lambda: CoherenceDisplay(np.eye(4), np.ones((4, 2, 2))).plot(ax=ax),
    }[name]()


@pytest.mark.parametrize("name", NAMES)
def test_a_display_draws_on_the_given_axes_or_a_new_figure(name, predictions, plt):
    display = draw(name, predictions)
    assert plt.get_fignums() == [display.figure_.number]
    before = np.ravel(display.ax_)[0]
    figure, ax = plt.subplots()
    assert draw(name, predictions, ax).figure_ is figure
    assert len(plt.get_fignums()) == 2
    assert name == "coherence" or ax.get_legend() is not None
    display.figure_.canvas.draw()  # warnings are errors here too
    assert display.plot() is display
    after = np.ravel(display.ax_)[0]
    assert after is not before
    assert after.dataLim.bounds == before.dataLim.bounds


@pytest.mark.parametrize("name", NAMES)
def test_the_error_without_matplotlib_names_the_extra(name, predictions, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"sklearn-mmdinit\[plot\]"):
        draw(name, predictions)


# LossCurveDisplay


def test_loss_curves_are_the_terms_of_the_history():
    display = LossCurveDisplay.from_estimator(LEARNED, linestyle="--")
    assert display.lines_["degeneracy"].get_linestyle() == "--"
    assert list(display.lines_) == ["loss", "uniformity", "degeneracy"]
    np.testing.assert_array_equal(display.lines_["loss"].get_xdata(), [100, 200, 250])
    np.testing.assert_array_equal(display.lines_["uniformity"].get_ydata(), [0.5, 0.3, 0.2])
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == list(display.lines_)


# PredictionDensityDisplay


@pytest.mark.parametrize(("over", "n_panels"), [("inputs", 4), ("perturbations", 5)])
def test_densities_have_a_panel_a_network_or_an_input_and_both_groups(over, n_panels, predictions):
    after = predictions[:, :, ::-1]
    display = PredictionDensityDisplay.from_predictions(
        predictions, after, over=over, max_panels=n_panels, class_index=1, bins=10
    )
    assert len(display.ax_) == n_panels
    for panel, axis in enumerate(display.ax_):
        for patch, array in zip(axis.patches, (predictions, after), strict=True):
            own = array[panel, :, 1] if over == "inputs" else array[:, panel, 1]
            expected, _ = np.histogram(own, bins=10, range=(0, 1), density=True)
            np.testing.assert_allclose(patch.get_data().values, expected)
        assert "class 1" in axis.get_xlabel()
    (legend,) = display.figure_.legends
    assert [text.get_text() for text in legend.get_texts()] == ["before", "after", "uniform"]


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_uniform_density_is_that_of_one_coordinate_on_the_simplex(n_classes):
    samples = {"before": [[0.1, 0.7]]}
    display = PredictionDensityDisplay(samples, ["input 0"], n_classes=n_classes).plot()
    (line,) = display.ax_[0].lines
    expected = stats.beta(1, n_classes - 1).pdf(line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), expected)


# CoherenceDisplay


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
