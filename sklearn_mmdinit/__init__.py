"""Initial weights for neural networks, learned from unlabelled data."""

from . import diagnostics, losses, theory
from ._base.mlp import MLP
from .classifiers import MLPClassifier, NetClassifier
from .coherence import Coherence
from .embedding_classifier import EmbeddingClassifier
from .initializer import MMDInitializer
from .learned_features import LearnedFeatures
from .mmd_init import mmd_init_
from .objective import MMDObjective, MMDTerms
from .stacking import StackedStartsClassifier
from .theta0 import Architecture, Theta0, load_theta0, save_theta0
from .transforms import OrientedGradients, RandomAffine, RandomView

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Architecture",
    "Coherence",
    "EmbeddingClassifier",
    "LearnedFeatures",
    "MLPClassifier",
    "MMDInitializer",
    "MMDObjective",
    "MMDTerms",
    "NetClassifier",
    "OrientedGradients",
    "RandomAffine",
    "RandomView",
    "StackedStartsClassifier",
    "Theta0",
    "diagnostics",
    "load_theta0",
    "losses",
    "mmd_init_",
    "save_theta0",
    "theory",
]
