"""Densities of the predictions of perturbed networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._core.estimators import check_choice
from ._curves import pyplot

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
        bins, ax, **line_kw
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
        if not 0 <= class_index < n_classes:
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
        remainder = 1.0 - np.asarray(probability, dtype=np.float64)
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
        plt = pyplot()
        n_panels = len(self.panel_names)
        own_figure = ax is None
        if own_figure:
            size = (max(3.0 * n_panels, 4.0), 2.6)  # wide enough for the legend
            _, ax = plt.subplots(
                1, n_panels, figsize=size, squeeze=False, sharex=True, layout="constrained"
            )
        axes = np.ravel(np.asarray(ax, dtype=object))
        if len(axes) != n_panels:
            raise ValueError(f"got {len(axes)} axes for {n_panels} panels")
        self.ax_, self.figure_ = axes, axes[0].figure
        grid = np.linspace(0.0, 1.0, 201)
        for panel, (axis, title) in enumerate(zip(axes, self.panel_names, strict=True)):
            for name, values in self.samples.items():
                heights, edges = np.histogram(
                    np.asarray(values)[panel], bins=bins, range=(0.0, 1.0), density=True
                )
                axis.stairs(heights, edges, **{"label": name, **line_kw})
            axis.plot(grid, self.uniform_density(grid), "k:", label="uniform")
            axis.set(title=title, xlabel=f"Probability of class {self.class_index}")
        axes[0].set_ylabel("Density")
        if own_figure:  # the curves fill their panels: beside them is where a legend hides none
            handles, labels = axes[0].get_legend_handles_labels()
            self.figure_.legend(
                handles, labels, loc="outside upper center", ncols=len(labels), frameon=False
            )
        else:
            axes[0].legend()
        return self


def _probabilities(name: str, values: ArrayLike) -> np.ndarray:
    """Predictions (n_perturbations, n_inputs, n_classes), checked, at most 1."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 3 or array.shape[2] < 2:
        raise ValueError(
            f"{name} must have shape (n_perturbations, n_inputs, n_classes) with two classes or "
            f"more, got {array.shape}"
        )
    # Written so that NaN fails too.
    if array.size and not ((array >= 0.0) & (array <= 1.0 + 1e-6)).all():
        raise ValueError(
            f"{name} must hold probabilities, got values from {array.min()} to {array.max()}"
        )
    return np.minimum(array, 1.0)
