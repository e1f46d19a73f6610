"""Initial weights for neural networks, learned from unlabelled data."""

from . import diagnostics, display, theory
from ._classifier import MLPClassifier
from ._initializer import MMDInitializer, RandomLabelInitializer
from ._persistence import load_theta0, save_theta0
from ._theta0 import Architecture, Theta0

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "MLPClassifier",
    "MMDInitializer",
    "RandomLabelInitializer",
    "Theta0",
    "diagnostics",
    "display",
    "load_theta0",
    "save_theta0",
    "theory",
]
