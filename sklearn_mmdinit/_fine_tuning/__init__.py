"""Training on labelled rows from a theta0: what a classifier is made of.

``BaseNetClassifier`` is all of it but the network: the skorch net, its batches, weights and
validation rows, labels as indices, what ``warm_start_from`` may be, parameters of parts.
"""

from .classifier import BaseNetClassifier
from .fresh_start import fresh_theta0
from .net import Network
from .parameters import check_choices
from .wanted import Wanted, layer_sizes

__all__ = [
    "BaseNetClassifier",
    "Network",
    "Wanted",
    "check_choices",
    "fresh_theta0",
    "layer_sizes",
]
