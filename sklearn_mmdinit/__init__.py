"""Initial weights for neural networks, learned from unlabelled data."""

from . import diagnostics, display, theory
from ._coherence import Coherence
from ._core.mlp import MLP
from ._images import OrientedGradients, RandomAffine
from ._in_place import mmd_init_
from ._mmd_initializer import MMDInitializer
from ._modules import register_layer
from ._network import Architecture, ModuleArchitecture, Theta0, load_theta0, save_theta0
from ._random_label_initializer import RandomLabelInitializer
from .classifiers import MLPClassifier, NetClassifier
from .warm_start import WarmStart

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Architecture",
    "Coherence",
    "MLPClassifier",
    "MMDInitializer",
    "ModuleArchitecture",
    "NetClassifier",
    "OrientedGradients",
    "RandomAffine",
    "RandomLabelInitializer",
    "Theta0",
    "WarmStart",
    "diagnostics",
    "display",
    "load_theta0",
    "mmd_init_",
    "register_layer",
    "save_theta0",
    "theory",
]
