"""Self-supervised pre-training of PyTorch networks, with the interface of scikit-learn."""

from . import losses
from ._base.mlp import MLP
from .classifiers import MLPClassifier, NetClassifier
from .coherence import Coherence
from .embedding_classifier import EmbeddingClassifier
from .fine_tuning.head import linear_probe_
from .initializer import MMDInitializer
from .mmd_init import mmd_init_
from .objective import MMDObjective
from .theta0 import Theta0
from .transforms import OrientedGradients, RandomAffine, RandomView

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "Coherence",
    "EmbeddingClassifier",
    "MLPClassifier",
    "MMDInitializer",
    "MMDObjective",
    "NetClassifier",
    "OrientedGradients",
    "RandomAffine",
    "RandomView",
    "Theta0",
    "linear_probe_",
    "losses",
    "mmd_init_",
]
