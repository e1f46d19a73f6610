"""The very weights that a network from scratch would begin from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.base import clone

from sklearn_mmdinit import MLPClassifier

__all__ = ["Arrays", "fresh_arrays", "n_layers", "weight_name"]

Arrays = dict[str, np.ndarray]
"""Weights (n_out, n_in) and biases (n_out,) by the names that ``warm_start_from`` reads."""


def weight_name(layer: int) -> str:
    """Name of a layer's weights, which count from 0."""
    return f"linears.{layer}.weight"


def n_layers(arrays: Arrays) -> int:
    """How many layers the arrays hold, the last one to the logits among them."""
    return sum(name.endswith(".weight") for name in arrays)


def fresh_arrays(classifier: MLPClassifier, n_features: int, classes: Sequence[int]) -> Arrays:
    """What ``classifier.fit`` would start from on rows of so many features.

    Parameters
    ----------
    classifier : MLPClassifier
        Unfitted, with ``warm_start_from`` that learns nothing and an int as ``random_state``.
    n_features : int
        Width of the rows.
    classes : sequence of int
        The labels; only their number matters.
    """
    # Fresh weights depend on the seed and the shapes alone, so rows of zeros do.
    unmoved = clone(classifier).set_params(max_iter=0, validation_split=None)
    unmoved.fit(np.zeros((len(classes), n_features), dtype=np.float32), np.asarray(classes))
    return dict(unmoved.theta0_.arrays)
