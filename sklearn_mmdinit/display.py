"""Plots of a pre-training and of what it is worth, in the style of scikit-learn's displays.

A display keeps its data; its ``plot`` draws them and sets ``ax_`` and ``figure_``. Matplotlib is
imported when a plot is drawn and not before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._core.estimators import check_choice, check_integer, check_kind, check_room, finite_array
from ._core.numbers import array_of
from .diagnostics import coherence_kernel

__all__ = ["CoherenceDisplay", "LossCurveDisplay", "PredictionDensityDisplay"]


def _axes_or_new(ax: Any, **options: Any) -> Any:
    """The axes to draw on: those given, or a new figure's; an ImportError without matplotlib."""
    try:
        import matplotlib.pyplot as plt
        from matplotlib.axes import Axes
    except ImportError as error:
        said = "drawing needs matplotlib: pip install 'sklearn-mmdinit[plot]'"
        raise ImportError(said) from error
    if ax is None:
        return plt.subplots(**options)[1]
    for own in np.ravel(np.asarray(ax, dtype=object)):
        check_kind("ax", own, Axes)
    return ax


@dataclass(eq=False, repr=False)
class LossCurveDisplay:
    """Every term of the loss by pre-training step, made by :meth:`from_estimator`.

    Parameters
    ----------
    steps : array-like of shape (n_windows,)
        Step at which each window ends.
    terms : dict of str to array-like of shape (n_windows,)
        Mean of each term over each window, unweighted.

    Attributes
    ----------
    lines_ : dict of str to matplotlib Line2D
        One line a term.
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on.

    Examples
    --------
    >>> from sklearn_mmdinit.display import LossCurveDisplay
    >>> display = LossCurveDisplay([100, 200], {"loss": [0.5, 0.2]})
    >>> sorted(display.terms)
    ['loss']
    """

    steps: ArrayLike
    terms: Mapping[str, ArrayLike]

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        terms: str | Sequence[str] | None = None,
        ax: Any = None,
        **line_kw: Any,
    ) -> LossCurveDisplay:
        """Draw the loss curves of a fitted initializer.

        Parameters
        ----------
        estimator : MMDInitializer
            A fitted one: its `history_` has one dict a window.
        terms : str, sequence of str or None, default=None
            Keys of `history_` to draw. None draws all of them.
        ax : matplotlib Axes, default=None
        **line_kw : dict
            As :meth:`plot` takes them.

        Returns
        -------
        LossCurveDisplay
        """
        if hasattr(estimator, "predict_proba"):
            kind = type(estimator).__name__
            raise TypeError(f"{kind} is no initializer: give of a classifier its initializer_")
        check_is_fitted(estimator, "history_")
        history = estimator.history_
        if not history:
            raise ValueError("the history is empty: no window of steps has ended yet")
        known = [key for key in history[0] if key != "step"]
        chosen = known if terms is None else np.atleast_1d(np.asarray(terms, object)).tolist()
        if unknown := [term for term in chosen if term not in known]:
            raise ValueError(f"unknown terms: {unknown}; the history has {known}")
        steps, *values = (np.array([row[key] for row in history]) for key in ["step", *chosen])
        return cls(steps, dict(zip(chosen, values, strict=True))).plot(ax=ax, **line_kw)

    def plot(self, ax: Any = None, **line_kw: Any) -> LossCurveDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None makes a new figure.
        **line_kw : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        LossCurveDisplay
        """
        check_kind("terms", self.terms, Mapping)
        check_integer("the number of terms", len(self.terms))
        steps = finite_array("steps", self.steps)
        curves = {n: finite_array(f"{n!r} of terms", v, steps.shape) for n, v in self.terms.items()}
        self.ax_ = _axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = {
            term: self.ax_.plot(steps, values, **{"label": term, **line_kw})[0]
            for term, values in curves.items()
        }
        self.ax_.set(xlabel="Step", ylabel="Mean over the window")
        self.ax_.legend()
        return self


@dataclass(eq=False, repr=False)
class CoherenceDisplay:
    """The kernel C of some inputs: as images beside their nearest and farthest, or as a heat map.

    C is the correlation of what perturbations of the last layer add to a logit: inputs of a
    large C get their labels together. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    kernel : array-like of shape (n, n)
        C of the inputs, as :func:`sklearn_mmdinit.diagnostics.coherence_kernel` gives it.
    images : array-like of shape (n, height, width), default=None
        The inputs as images; None draws a heat map.
    anchors : sequence of int, default=None
        Inputs whose row of C is shown, as images; None: the first four.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit.display import CoherenceDisplay
    >>> kernel = np.eye(4) + np.eye(4)[[2, 3, 0, 1]]  # 0 with 2, and 1 with 3
    >>> order = CoherenceDisplay(kernel).order()
    >>> sorted(order[:2].tolist()) in ([0, 2], [1, 3])
    True
    """

    kernel: ArrayLike
    images: ArrayLike | None = None
    anchors: Sequence[int] | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        *,
        image_shape: tuple[int, int] | None = None,
        n_anchors: int = 4,
        n_shown: int = 6,
        random_state: Any = None,
        ax: Any = None,
    ) -> CoherenceDisplay:
        """Draw C at the theta0 of a fitted estimator.

        Parameters
        ----------
        estimator : initializer, MLPClassifier or Theta0
            Whose theta0 is looked at.
        X : array-like of shape (n_samples, ...)
            Inputs, some hundred.
        image_shape : tuple of int, default=None
            Height and width of a row of X as an image of one channel; None draws a heat map.
        n_anchors : int, default=4
            Inputs, drawn at random, whose row of C is shown, as images.
        n_shown : int, default=6
            As :meth:`plot` takes it.
        random_state : int, RandomState instance or None, default=None
            Of the anchors.
        ax : matplotlib Axes, default=None
            As :meth:`plot` takes it.

        Returns
        -------
        CoherenceDisplay
        """
        check_integer("n_anchors", n_anchors)
        kernel = coherence_kernel(estimator, X)  # of a DataFrame, by the names of its columns
        images = None if image_shape is None else _as_images(np.asarray(array_of(X)), image_shape)
        random = check_random_state(random_state)
        anchors = random.choice(len(kernel), size=min(n_anchors, len(kernel)), replace=False)
        return cls(kernel, images, anchors.tolist()).plot(ax=ax, n_shown=n_shown)

    def order(self) -> np.ndarray:
        """The inputs in an order in which those of a large C are near each other.

        That of the leaves of a tree of clusters, by average linkage of 1 - C, turned at each
        branch so that neighbours are as alike as they can be (Bar-Joseph et al., 2001).

        Returns
        -------
        ndarray of int of shape (n,)
            A permutation of the inputs.
        """
        distances = squareform(1.0 - _checked(self.kernel), checks=False)
        return leaves_list(linkage(distances, "average", optimal_ordering=True))

    def plot(self, ax: Any = None, *, n_shown: int = 6) -> CoherenceDisplay:
        """Draw the anchors beside their nearest and farthest images, or the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        n_shown : int, default=6
            The nearest and the farthest inputs shown beside an anchor, so many of each.

        Returns
        -------
        CoherenceDisplay
        """
        check_integer("n_shown", n_shown)
        C = _checked(self.kernel)
        if self.images is not None:
            images, n_shown = finite_array("images", self.images), min(n_shown, (len(C) - 1) // 2)
            self._plot_images(C, images, ax, n_shown)
            return self
        self.ax_ = _axes_or_new(ax)
        self.figure_ = self.ax_.figure
        order = self.order()
        sorted_C = C[np.ix_(order, order)]
        drawn = self.ax_.imshow(sorted_C, vmin=min(C.min(), 0.0), vmax=1.0, cmap="magma")
        self.figure_.colorbar(drawn, ax=self.ax_, label="C")
        self.ax_.set(xlabel="inputs, in groups", ylabel="inputs, in groups", title="Coherence")
        return self

    def _plot_images(self, C: np.ndarray, images: np.ndarray, ax: Any, n_shown: int) -> None:
        """A row of images an anchor, on one pair of axes: itself, its nearest, its farthest."""
        n = len(C)
        if images.ndim != 3 or len(images) != n:
            raise ValueError(f"images must have shape ({n}, height, width), got {images.shape}")
        anchors = np.atleast_1d(range(min(4, n)) if self.anchors is None else self.anchors).tolist()
        if not (anchors and all(type(a) is int and 0 <= a < n for a in anchors)):
            raise ValueError(f"anchors must be numbers of the {n} inputs, got {anchors}")
        if n_shown < 1:
            raise ValueError(f"{n} inputs have no nearest and farthest: give three or more")
        size = (0.75 * (2 * n_shown + 2.5), 0.95 * len(anchors) + 0.4)
        ax = _axes_or_new(ax, figsize=size, layout="constrained")
        height, width = images.shape[1:]
        look = {"cmap": "gray_r", "vmin": float(images.min()), "vmax": float(images.max())}
        # Room for a gap after the anchor, one before the farthest, and C under each image.
        gap, line = 0.5 * width, 0.35 * height
        for row, anchor in enumerate(anchors):
            top = row * (height + line)
            others = np.argsort(-C[anchor], kind="stable")
            others = others[others != anchor]
            shown = [anchor, *others[:n_shown], *others[len(others) - n_shown :]]
            for place, index in enumerate(shown):
                left = place * width * 1.08 + gap * ((place > 0) + (place > n_shown))
                ax.imshow(images[index], extent=(left, left + width, top + height, top), **look)
                if place:
                    middle, value = left + width / 2, f"{C[anchor, index]:.2f}"
                    ax.text(middle, top + height, value, ha="center", va="top", fontsize="small")
        ax.set_xlim(-0.1 * width, (2 * n_shown + 1) * width * 1.08 + 2 * gap)
        ax.set_ylim(len(anchors) * (height + line), -0.1 * height)
        ax.set_aspect("equal")
        ax.set_axis_off()
        ax.set_title("input, its nearest and its farthest, with C")
        self.ax_, self.figure_ = ax, ax.figure


def _checked(kernel: ArrayLike) -> np.ndarray:
    """A kernel (n, n) in float64; a ValueError unless it is symmetric and finite."""
    C = finite_array("kernel", kernel)
    if C.ndim != 2 or C.shape[0] != C.shape[1] or len(C) < 2:
        raise ValueError(f"kernel must have shape (n, n) with n of 2 or more, got {C.shape}")
    if not np.allclose(C, C.T, atol=1e-4):
        raise ValueError("kernel must be symmetric")
    return C


def _as_images(rows: np.ndarray, image_shape: Any) -> np.ndarray:
    """Rows (n, ...) as images (n, height, width); axes of length 1 do not matter."""
    sides = np.atleast_1d(image_shape).tolist()
    valid = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    own = [side for side in rows.shape[1:] if side != 1]
    if not valid or own not in ([side for side in sides if side != 1], [math.prod(sides)]):
        said = "it must be None or a height and a width"
        raise ValueError(f"{image_shape=} does not fit X of shape {rows.shape}: {said}")
    return rows.reshape(len(rows), *sides)


# What a density runs over: the axis of the predictions that is spread over panels, and its name.
_PANEL_AXES = {"perturbations": (1, "input"), "inputs": (0, "perturbed network")}


@dataclass(eq=False, repr=False)
class PredictionDensityDisplay:
    """Densities of one class's probability, beside the density of uniform predictions.

    One panel a curve: over perturbations for fixed inputs, or over inputs for fixed
    perturbations (the paper's figure "degenerate_ex"). Create it with :meth:`from_predictions`.

    Parameters
    ----------
    samples : dict of str to array-like of shape (n_panels, n_samples)
        Probabilities of the class for each group, such as "before" and "after".
    panel_names : sequence of str
        Title of each panel.
    n_classes : int, default=2
        Number of classes d. The uniform distribution on the simplex gives one class's
        probability p the density (d - 1) (1 - p)^(d - 2), which is 1 for two classes.
    class_index : int, default=0
        The class, named on the axis.

    Attributes
    ----------
    ax_ : ndarray of matplotlib Axes of shape (n_panels,)
        One Axes a panel.
    figure_ : matplotlib Figure
        Figure of the axes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_mmdinit.display import PredictionDensityDisplay
    >>> samples = {"before": np.full((1, 9), 0.5)}
    >>> PredictionDensityDisplay(samples, panel_names=["input 0"]).uniform_density([0.0, 0.5])
    array([1., 1.])
    """

    samples: Mapping[str, ArrayLike]
    panel_names: Sequence[str]
    n_classes: int = 2
    class_index: int = 0

    @classmethod
    def from_predictions(
        cls,
        before: ArrayLike,
        after: ArrayLike | None = None,
        *,
        over: str = "perturbations",
        max_panels: int = 4,
        class_index: int = 0,
        bins: int = 40,
        ax: Any = None,
        **line_kw: Any,
    ) -> PredictionDensityDisplay:
        """Draw densities from the predictions of perturbed networks.

        Parameters
        ----------
        before : array-like of shape (n_perturbations, n_inputs, n_classes)
            Probabilities of the perturbed networks before pre-training.
        after : array-like of shape (n_perturbations, n_inputs, n_classes) or None, default=None
            The same after pre-training. None leaves it out.
        over : {"perturbations", "inputs"}, default="perturbations"
            What a density runs over. "perturbations" makes a panel for each input, "inputs" one
            for each perturbed network.
        max_panels : int, default=4
            The first so many panels are drawn.
        class_index : int, default=0
            The class whose probability is drawn.
        bins : int, default=40
        ax : matplotlib Axes, default=None
        **line_kw : dict
            As :meth:`plot` takes them.

        Returns
        -------
        PredictionDensityDisplay
        """
        check_choice("over", over, _PANEL_AXES)
        arrays = {"before": _probabilities("before", before)}
        if after is not None:
            arrays["after"] = _probabilities("after", after)
        shapes = [array.shape for array in arrays.values()]
        n_classes = shapes[0][2]
        if shapes[-1][2] != n_classes:
            raise ValueError(f"before and after must have the same classes, got shapes {shapes}")
        check_integer("max_panels", max_panels)
        check_integer("class_index", class_index, least=0)
        if class_index >= n_classes:
            raise ValueError(f"class_index={class_index} must lie in [0, {n_classes})")
        panel_axis, noun = _PANEL_AXES[over]
        n_panels = min(max_panels, *(shape[panel_axis] for shape in shapes))
        if n_panels < 1:
            raise ValueError(f"nothing to draw: max_panels={max_panels}, shapes {shapes}")
        samples = {
            name: np.moveaxis(array[..., class_index], panel_axis, 0)[:n_panels]
            for name, array in arrays.items()
        }
        names = [f"{noun} {panel}" for panel in range(n_panels)]
        return cls(samples, names, n_classes, class_index).plot(ax=ax, bins=bins, **line_kw)

    def uniform_density(self, probability: ArrayLike) -> np.ndarray:
        """Density of one class's probability under the uniform distribution on the simplex.

        Parameters
        ----------
        probability : array-like of float
            Where to evaluate it, in [0, 1].

        Returns
        -------
        ndarray of the shape of `probability`
            The density.
        """
        remainder = 1.0 - finite_array("probability", probability)
        if (abs(remainder - 0.5) > 0.5).any():
            raise ValueError(f"probability must lie in [0, 1], got {probability!r}")
        return (self.n_classes - 1.0) * remainder ** (self.n_classes - 2)

    def plot(self, ax: Any = None, *, bins: int = 40, **line_kw: Any) -> PredictionDensityDisplay:
        """Draw the panels.

        Parameters
        ----------
        ax : sequence of matplotlib Axes or None, default=None
            One Axes a panel. None makes a new figure.
        bins : int, default=40
            Number of bins of the histogram on [0, 1].
        **line_kw : dict
            Passed on to matplotlib's `stairs`.

        Returns
        -------
        PredictionDensityDisplay
        """
        check_kind("panel_names", self.panel_names, Sequence)
        check_kind("samples", self.samples, Mapping)
        check_integer("n_classes", self.n_classes, least=2)
        check_integer("bins", bins)
        check_room(10 * bins, f"{bins=}")
        n_panels, own_figure = len(self.panel_names), ax is None
        samples = {name: finite_array(name, values) for name, values in self.samples.items()}
        for name, array in samples.items():
            right = array.ndim == 2 and 0 < len(array) == n_panels
            if not right or array.min() < 0.0 or array.max() > 1.0:
                raise ValueError(f"{name} must be {n_panels} panels of probabilities, got {array}")
        size = (max(3.0 * n_panels, 4.0), 2.6)  # wide enough for the legend
        ax = _axes_or_new(ax, ncols=n_panels, figsize=size, sharex=True, layout="constrained")
        axes = np.ravel(np.asarray(ax, dtype=object))
        if len(axes) != n_panels:
            raise ValueError(f"got {len(axes)} axes for {n_panels} panels")
        self.ax_, self.figure_ = axes, axes[0].figure
        grid = np.linspace(0.0, 1.0, 201)
        for panel, (axis, title) in enumerate(zip(axes, self.panel_names, strict=True)):
            for name, values in samples.items():
                heights, edges = np.histogram(values[panel], bins, range=(0.0, 1.0), density=True)
                axis.stairs(heights, edges, **{"label": name, **line_kw})
            axis.plot(grid, self.uniform_density(grid), "k:", label="uniform")
            axis.set(title=title, xlabel=f"Probability of class {self.class_index}")
        axes[0].set_ylabel("Density")
        handles, labels = axes[0].get_legend_handles_labels()
        if own_figure:  # the curves fill their panels: beside them is where a legend hides none
            place = {"loc": "outside upper center", "ncols": len(labels), "frameon": False}
            self.figure_.legend(handles, labels, **place)
        else:
            axes[0].legend()
        return self


def _probabilities(name: str, values: ArrayLike) -> np.ndarray:
    """Predictions (n_perturbations, n_inputs, n_classes), checked, at most 1."""
    array = finite_array(name, values)
    if array.ndim != 3 or array.shape[2] < 2:
        valid = "(n_perturbations, n_inputs, n_classes >= 2)"
        raise ValueError(f"{name} must have shape {valid}, got {array.shape}")
    if array.size and not (array.min() >= 0.0 and array.max() <= 1.0 + 1e-6):
        found = f"values from {array.min()} to {array.max()}"
        raise ValueError(f"{name} must hold probabilities, got {found}")
    return np.minimum(array, 1.0)
