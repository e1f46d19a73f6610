"""Plots of a pre-training and of what it is worth, in the style of scikit-learn's displays.

A display keeps its data; its ``plot`` draws them and sets ``ax_`` and ``figure_``. Matplotlib is
imported when a plot is drawn and not before.
"""

from ._curves import LossCurveDisplay, TaskAccuracyDisplay
from ._predictions import CoherenceDisplay, PredictionDensityDisplay

__all__ = [
    "CoherenceDisplay",
    "LossCurveDisplay",
    "PredictionDensityDisplay",
    "TaskAccuracyDisplay",
]
