"""What a network is, and its initial parameters theta0.

A shape (``Architecture``), the perceptron of that shape, its activations and random weights,
and theta0 as NumPy arrays: alone, in a file, or carried by an array through a Pipeline.
"""

from .activations import ACTIVATIONS
from .architecture import Architecture
from .files import load_theta0, save_theta0
from .gain import has_gain, scales_freely, with_gain, without_gain
from .inits import INITS, random_theta0
from .mlp import BATCH_NORM_EPS, MLP, module_from_theta0, theta0_from_module
from .tagged import tag, tag_is_lost, theta0_of
from .theta0 import Theta0

__all__ = [
    "ACTIVATIONS",
    "BATCH_NORM_EPS",
    "INITS",
    "MLP",
    "Architecture",
    "Theta0",
    "has_gain",
    "load_theta0",
    "module_from_theta0",
    "random_theta0",
    "save_theta0",
    "scales_freely",
    "tag",
    "tag_is_lost",
    "theta0_from_module",
    "theta0_of",
    "with_gain",
    "without_gain",
]
