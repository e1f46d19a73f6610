"""Initial weights for neural networks, learned from unlabelled data."""

from ._core.mlp import MLP
from .classifiers import MLPClassifier, NetClassifier
from .coherence import Coherence
from .in_place import mmd_init_
from .initializers import MMDInitializer, RandomLabelInitializer
from .theta0 import Architecture, Theta0, load_theta0, save_theta0
from .transforms import OrientedGradients, RandomAffine
from .warm_start import WarmStart

__version__ = "0.1.0"
