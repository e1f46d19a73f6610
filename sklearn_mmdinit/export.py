"""Weights as a fitted MLPClassifier of scikit-learn's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier

from .theta0 import Theta0

__all__ = ["sklearn_mlp"]

# Of those here, what scikit-learn has, under the same names.
_ACTIVATIONS = ("relu", "tanh")

# What batch normalisation adds to variances: PyTorch's default, which an MLP has.
_EPS = 1e-5


def folded_layers(theta0: Theta0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    r"""Weights (n_in, n_out) and biases (n_out,) of each layer, batch normalisation in them.

    At its running mean m and variance v it is affine,
    :math:`g (W h + b - m) / \sqrt{v + \epsilon} + c = (s W) h + s (b - m) + c` with
    :math:`s = g / \sqrt{v + \epsilon}`, in float64.
    """
    weights = [array.astype(np.float64) for array in theta0.coefs]
    biases = [array.astype(np.float64) for array in theta0.intercepts]
    if theta0.architecture.keywords["batch_norm"]:
        for layer in range(len(weights) - 1):
            g, c, m, v = (
                theta0.arrays[f"norms.{layer}.{name}"].astype(np.float64)
                for name in ("weight", "bias", "running_mean", "running_var")
            )
            s = g / np.sqrt(v + _EPS)
            weights[layer] = weights[layer] * s
            biases[layer] = s * (biases[layer] - m) + c
    return weights, biases


def sklearn_mlp(
    theta0: Theta0, classes: np.ndarray, feature_names: Any = None, **params: Any
) -> MLPClassifier:
    """A fitted MLPClassifier of scikit-learn's with the weights of an MLP, of any time."""
    architecture = theta0.architecture
    if not architecture.is_perceptron:
        raise ValueError(f"scikit-learn has no {architecture.module}; use to_module()")
    keywords, n_classes = architecture.keywords, architecture.n_classes
    own = {name: keywords[name] for name in ("hidden_layer_sizes", "activation")}
    if (activation := own["activation"]) not in _ACTIVATIONS:
        raise ValueError(f"{activation=} is none of scikit-learn's, {list(_ACTIVATIONS)}")
    for name in sorted(params.keys() & own.keys()):
        raise ValueError(f"{name}={params[name]!r} cannot be chosen: it is {own[name]!r}")
    if len(classes) != n_classes:
        raise ValueError(f"classes={classes.tolist()} are {len(classes)}, not {n_classes=}")
    weights, biases = folded_layers(theta0)
    if len(classes) == 2:
        # Softmax of two logits is the logistic function of their difference, scikit-learn's
        # one output.
        weights[-1] = weights[-1][:, 1:] - weights[-1][:, :1]
        biases[-1] = biases[-1][1:] - biases[-1][:1]
    fitted = _initialized(classes, architecture.n_features, own)
    fitted.coefs_, fitted.intercepts_ = weights, biases
    if feature_names is not None:
        fitted.feature_names_in_ = feature_names
    if params.get("early_stopping"):  # which a fit that goes on adds to
        fitted.validation_scores_, fitted.best_validation_score_ = [], -np.inf
    return fitted.set_params(**params)


def _initialized(classes: np.ndarray, n_features: int, own: dict[str, Any]) -> MLPClassifier:
    """One that has the fitted attributes of its version, none of which tells of training yet."""
    # scikit-learn sets them itself: a step on rows of zeros, of which nothing is kept.
    begun = MLPClassifier(**own, random_state=0)
    begun.partial_fit(np.zeros((len(classes), n_features)), classes, classes=classes)
    del begun._optimizer  # made anew by the next training
    begun.random_state = None
    begun.n_iter_, begun.t_, begun._no_improvement_count = 0, 0, 0
    begun.loss_, begun.best_loss_, begun.loss_curve_ = np.inf, np.inf, []
    return begun
