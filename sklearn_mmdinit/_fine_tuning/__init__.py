"""Training on labelled rows from a theta0: what MLPClassifier is made of.

The skorch net, its batches and validation rows, labels as indices, what ``warm_start_from``
may be, and parameters that belong to a part and are set through the whole.
"""

from .batches import Rows
from .fresh_start import fresh_theta0
from .labels import indices_of, learn_classes
from .net import NetAttributes, build_net, train
from .parameters import RoutedParameters, check_parameters
from .validation import split_rows
from .wanted import Wanted, layer_sizes
from .warm_start import resolve

__all__ = [
    "NetAttributes",
    "RoutedParameters",
    "Rows",
    "Wanted",
    "build_net",
    "check_parameters",
    "fresh_theta0",
    "indices_of",
    "layer_sizes",
    "learn_classes",
    "resolve",
    "split_rows",
    "train",
]
