"""Loss curves of a pre-training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ._drawing import new_axes

__all__ = ["LossCurveDisplay"]


class LossCurveDisplay:
    """Every term of the loss by pre-training step.

    Create it with :meth:`from_estimator`.

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
    ax_ : matplotlib Axes
        Axes with the curves.
    figure_ : matplotlib Figure
        Figure of the axes.

    Examples
    --------
    >>> from sklearn_mmdinit.display import LossCurveDisplay
    >>> display = LossCurveDisplay([100, 200], {"loss": [0.5, 0.2]})
    >>> sorted(display.terms)
    ['loss']
    """

    def __init__(self, steps: ArrayLike, terms: Mapping[str, ArrayLike]) -> None:
        self.steps = steps
        self.terms = terms

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
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None makes a new figure.
        **line_kw : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        LossCurveDisplay
            The display, drawn.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        TypeError
            If its history is none of a pre-training, as a classifier's is not.
        ValueError
            If a term is not in the history, or the history is empty.
        ImportError
            If matplotlib is not installed.
        """
        check_is_fitted(estimator, "history_")
        history = estimator.history_
        if not history:
            raise ValueError("the history is empty: no window of steps has ended yet")
        if "step" not in history[0]:
            raise TypeError(
                f"the history of {type(estimator).__name__} is none of a pre-training: give a "
                "fitted initializer, of a classifier its initializer_"
            )
        known = [key for key in history[0] if key != "step"]
        chosen = known if terms is None else [terms] if isinstance(terms, str) else list(terms)
        if unknown := [term for term in chosen if term not in known]:
            raise ValueError(f"unknown terms: {unknown}; the history has {known}")
        display = cls(
            steps=np.array([window["step"] for window in history]),
            terms={term: np.array([window[term] for window in history]) for term in chosen},
        )
        return display.plot(ax=ax, **line_kw)

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
            The display itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.ax_ = new_axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = {
            term: self.ax_.plot(self.steps, values, **{"label": term, **line_kw})[0]
            for term, values in self.terms.items()
        }
        self.ax_.set(xlabel="Step", ylabel="Mean over the window")
        self.ax_.legend()
        return self
