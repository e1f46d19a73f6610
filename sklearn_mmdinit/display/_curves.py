"""Curves of a pre-training: its losses by step, and accuracies by the number of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from .._core.estimators import check_integer, check_kind, check_number, finite_array


def axes_or_new(ax: Any, **options: Any) -> Any:
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
        estimator : MMDInitializer or RandomLabelInitializer
            A fitted initializer: its `history_` has one dict a window.
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
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = {
            term: self.ax_.plot(steps, values, **{"label": term, **line_kw})[0]
            for term, values in curves.items()
        }
        self.ax_.set(xlabel="Step", ylabel="Mean over the window")
        self.ax_.legend()
        return self


@dataclass(eq=False, repr=False)
class TaskAccuracyDisplay:
    """Mean accuracy over tasks by the number of labels, with an interval, for several methods.

    Create it with :meth:`from_scores`, or with means and intervals at hand.

    Parameters
    ----------
    n_labelled : array-like of shape (n_sizes,)
        Number of labels, or the paper's N, ascending.
    means : dict of str to array-like of shape (n_sizes,)
        Mean accuracy of each method.
    intervals : dict of str to array-like of shape (n_sizes, 2)
        Lower and upper end of the interval around each mean.

    Attributes
    ----------
    errorbars_ : dict of str to matplotlib ErrorbarContainer
        One curve a method.
    ax_, figure_ : matplotlib Axes and Figure
        What was drawn on.

    Examples
    --------
    >>> from sklearn_mmdinit.display import TaskAccuracyDisplay
    >>> display = TaskAccuracyDisplay([5, 10], {"ours": [0.8, 0.9]}, {"ours": [[0.7, 0.9]] * 2})
    >>> list(display.means)
    ['ours']
    """

    n_labelled: ArrayLike
    means: Mapping[str, ArrayLike]
    intervals: Mapping[str, ArrayLike]

    @classmethod
    def from_scores(
        cls,
        n_labelled: ArrayLike,
        scores: Mapping[str, ArrayLike],
        *,
        confidence: float = 0.95,
        ax: Any = None,
        **errorbar_kw: Any,
    ) -> TaskAccuracyDisplay:
        """Draw means of scores over tasks with their Student t intervals.

        The interval is that of a mean over tasks drawn at random. Two methods on the same tasks
        differ by far less than their intervals suggest: compare them in pairs.

        Parameters
        ----------
        n_labelled : array-like of shape (n_sizes,)
            Number of labels, or the paper's N, ascending.
        scores : dict of str to array-like of shape (n_sizes, n_tasks)
            Accuracy of each method on each task.
        confidence : float, default=0.95
            Level of the interval, between 0 and 1.
        ax : matplotlib Axes, default=None
        **errorbar_kw : dict
            As :meth:`plot` takes them.

        Returns
        -------
        TaskAccuracyDisplay
        """
        check_number("confidence", confidence, zero=False)
        if confidence >= 1.0:
            raise ValueError(f"confidence={confidence!r} must lie between 0 and 1")
        check_kind("scores", scores, Mapping)
        check_integer("the number of methods in scores", len(scores))
        n_sizes = np.size(n_labelled)
        means: dict[str, ArrayLike] = {}
        intervals: dict[str, ArrayLike] = {}
        for method, values in scores.items():
            table = finite_array(name := f"scores of {method!r}", values)
            if table.ndim != 2 or len(table) != n_sizes or table.shape[1] < 2:
                valid = f"({n_sizes}, n_tasks) with two tasks or more"
                raise ValueError(f"{name} must have shape {valid}, got {table.shape}")
            quantile = stats.t.ppf(0.5 + confidence / 2.0, df=table.shape[1] - 1)
            half = quantile * stats.sem(table, axis=1)
            means[method] = mean = table.mean(axis=1)
            intervals[method] = np.stack([mean - half, mean + half], axis=1)
        return cls(n_labelled, means, intervals).plot(ax=ax, **errorbar_kw)

    def plot(self, ax: Any = None, **errorbar_kw: Any) -> TaskAccuracyDisplay:
        """Draw one curve a method.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None makes a new figure.
        **errorbar_kw : dict
            Passed on to matplotlib's `errorbar`.

        Returns
        -------
        TaskAccuracyDisplay
        """
        sizes, bars = finite_array("n_labelled", self.n_labelled), {}
        if sizes.ndim != 1 or (sizes <= 0).any():
            raise ValueError(f"n_labelled must be numbers above 0, got {self.n_labelled!r}")
        for method, given in self.means.items():
            mean = finite_array(f"{method!r} of means", given, sizes.shape)
            found, name = self.intervals.get(method), f"{method!r} of intervals"
            ends = finite_array(name, found, (*sizes.shape, 2))
            bars[method] = mean, np.abs(ends.T - mean)
        self.ax_ = axes_or_new(ax)
        self.figure_ = self.ax_.figure
        self.errorbars_ = {}
        for rank, (method, (mean, half)) in enumerate(bars.items()):
            # Each method a little to the right of the last, or the bars hide each other.
            shift = 1.0 + 0.03 * (rank - (len(self.means) - 1) / 2.0)
            style = {"label": method, "marker": "o", "capsize": 3.0, **errorbar_kw}
            self.errorbars_[method] = self.ax_.errorbar(sizes * shift, mean, yerr=half, **style)
        self.ax_.set_xscale("log")
        self.ax_.set_xticks(sizes, [f"{size:g}" for size in sizes])
        self.ax_.minorticks_off()
        self.ax_.set(xlabel="N", ylabel="Mean accuracy over tasks")
        self.ax_.legend()
        return self
