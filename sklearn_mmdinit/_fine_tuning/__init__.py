"""Training on labelled rows from a theta0: what a classifier is made of.

``BaseNetClassifier`` is all of it but the network: the skorch net, its batches, weights and
validation rows, labels as indices, what ``warm_start_from`` may be, parameters of parts.
"""

from .classifier import BaseNetClassifier
from .module import WantedModule, as_inputs, source_of_initializer
from .net import find_optimizer
from .parameters import check_choices, plain
from .perceptron import WantedPerceptron, layer_sizes
from .start_callback import WarmStart

__all__ = [
    "BaseNetClassifier",
    "WantedModule",
    "WantedPerceptron",
    "WarmStart",
    "as_inputs",
    "check_choices",
    "find_optimizer",
    "layer_sizes",
    "plain",
    "source_of_initializer",
]
