"""Plots of a pre-training and of what it is worth, in the style of scikit-learn's displays.

A display keeps its data; its ``plot`` draws them and sets ``ax_`` and ``figure_``. Matplotlib is
imported when a plot is drawn and not before.
"""

from ._coherence import CoherenceDisplay
from ._curves import LossCurveDisplay, TaskAccuracyDisplay
from ._prediction_density import PredictionDensityDisplay

__all__ = [
    "CoherenceDisplay",
    "LossCurveDisplay",
    "PredictionDensityDisplay",
    "TaskAccuracyDisplay",
]
