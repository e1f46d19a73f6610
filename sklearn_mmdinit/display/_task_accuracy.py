"""Accuracy over tasks by the number of labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ._drawing import new_axes

__all__ = ["TaskAccuracyDisplay"]

Array = np.ndarray[Any, Any]


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
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure of the axes.

    Examples
    --------
    >>> from sklearn_mmdinit.display import TaskAccuracyDisplay
    >>> display = TaskAccuracyDisplay([5, 10], {"ours": [0.8, 0.9]}, {"ours": [[0.7, 0.9]] * 2})
    >>> list(display.means)
    ['ours']
    """

    def __init__(
        self,
        n_labelled: ArrayLike,
        means: Mapping[str, ArrayLike],
        intervals: Mapping[str, ArrayLike],
    ) -> None:
        self.n_labelled = n_labelled
        self.means = means
        self.intervals = intervals

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
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None makes a new figure.
        **errorbar_kw : dict
            Passed on to matplotlib's `errorbar`.

        Returns
        -------
        TaskAccuracyDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            If there are no scores, a shape does not fit, a score is not finite, or `confidence`
            is not between 0 and 1.
        ImportError
            If matplotlib is not installed.
        """
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence={confidence!r} must lie between 0 and 1")
        if not scores:
            raise ValueError("scores is empty; it must hold at least one method")
        n_sizes = np.size(n_labelled)
        means: dict[str, Array] = {}
        intervals: dict[str, Array] = {}
        for method, values in scores.items():
            means[method], intervals[method] = _student_interval(
                method, values, n_sizes, confidence
            )
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
            The display itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.ax_ = new_axes(ax)
        self.figure_ = self.ax_.figure
        sizes = np.asarray(self.n_labelled, dtype=np.float64)
        self.errorbars_ = {}
        for rank, (method, mean) in enumerate(self.means.items()):
            mean = np.asarray(mean, dtype=np.float64)
            low, high = np.asarray(self.intervals[method], dtype=np.float64).T
            # Each method a little to the right of the last, or the bars hide each other.
            shift = 1.0 + 0.03 * (rank - (len(self.means) - 1) / 2.0)
            style = {"label": method, "marker": "o", "capsize": 3.0, **errorbar_kw}
            self.errorbars_[method] = self.ax_.errorbar(
                sizes * shift, mean, yerr=np.stack([mean - low, high - mean]), **style
            )
        self.ax_.set_xscale("log")
        self.ax_.set_xticks(sizes, [f"{size:g}" for size in sizes])
        self.ax_.minorticks_off()
        self.ax_.set(xlabel="N", ylabel="Mean accuracy over tasks")
        self.ax_.legend()
        return self


def _student_interval(
    method: str, values: ArrayLike, n_sizes: int, confidence: float
) -> tuple[Array, Array]:
    """Means (n_sizes,) over tasks and their intervals (n_sizes, 2)."""
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != n_sizes or table.shape[1] < 2:
        raise ValueError(
            f"scores of {method!r} must have shape ({n_sizes}, n_tasks) with two tasks or more, "
            f"got {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError(f"scores of {method!r} hold NaN or infinity")
    n_tasks = table.shape[1]
    mean = table.mean(axis=1)
    half = stats.t.ppf(0.5 + confidence / 2.0, df=n_tasks - 1) * (
        table.std(axis=1, ddof=1) / np.sqrt(n_tasks)
    )
    return mean, np.stack([mean - half, mean + half], axis=1)
