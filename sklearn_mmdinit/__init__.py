"""Initial weights for neural networks, learned from unlabelled data."""

from . import display, theory
from ._theta0 import Architecture, Theta0

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "Theta0",
    "display",
    "theory",
]
