"""Initial weights for neural networks, learned from unlabelled data."""

from . import diagnostics, losses
from ._base.mlp import MLP
from .classifiers import MLPClassifier, NetClassifier
from .coherence import Coherence
from .embedding_classifier import EmbeddingClassifier
from .initializer import MMDInitializer
from .mmd_init import mmd_init_
from .objective import MMDObjective, MMDTerms
from .random_view import RandomView
from .theta0 import Architecture, Theta0, load_theta0, save_theta0
from .transforms import OrientedGradients, RandomAffine

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Architecture",
    "Coherence",
    "EmbeddingClassifier",
    "MLPClassifier",
    "MMDInitializer",
    "MMDObjective",
    "MMDTerms",
    "NetClassifier",
    "OrientedGradients",
    "RandomAffine",
    "RandomView",
    "Theta0",
    "diagnostics",
    "load_theta0",
    "losses",
    "mmd_init_",
    "save_theta0",
]
