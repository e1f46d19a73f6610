"""Turns the weights of a perceptron into scikit-learn's own MLPClassifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier

from .theta0 import Theta0

__all__ = ["sklearn_mlp"]

# Activations that scikit-learn has too, under the same names.
_ACTIVATIONS = ("relu", "tanh")


def folded_layers(theta0: Theta0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights (n_in, n_out) and biases (n_out,) of each layer in float64."""
    module: Any = theta0.to_module().double().eval()
    weights = [linear.weight.detach().numpy().T for linear in module.linears]
    return weights, [linear.bias.detach().numpy() for linear in module.linears]


def sklearn_mlp(
    theta0: Theta0, classes: np.ndarray, feature_names: Any = None, **params: Any
) -> MLPClassifier:
    """A fitted MLPClassifier of scikit-learn with the weights of an MLP, initial or trained."""
    architecture = theta0.architecture
    structure = {name: architecture.keywords[name] for name in ("hidden_layer_sizes", "activation")}
    if (activation := structure["activation"]) not in _ACTIVATIONS:
        valid = f"scikit-learn's MLPClassifier has only {' and '.join(map(repr, _ACTIVATIONS))}"
        raise ValueError(f"{activation=} cannot be exported: {valid}; train with one of them")
    for name in sorted(params.keys() & structure.keys()):
        network = f"the exported network has {structure[name]!r}; leave it out"
        raise ValueError(f"{name}={params[name]!r} cannot be chosen: {network}")
    weights, biases = folded_layers(theta0)
    if len(classes) == 2:
        # The softmax of two logits is the logistic function of their difference, which is
        # scikit-learn's single output.
        weights[-1] = weights[-1][:, 1:] - weights[-1][:, :1]
        biases[-1] = biases[-1][1:] - biases[-1][:1]
    fitted = _untrained(classes, architecture.n_features, structure)
    fitted.coefs_, fitted.intercepts_ = weights, biases
    if feature_names is not None:
        fitted.feature_names_in_ = feature_names
    if params.get("early_stopping"):  # a later fit appends to these
        fitted.validation_scores_, fitted.best_validation_score_ = [], -np.inf
    return fitted.set_params(**params)


def _untrained(classes: np.ndarray, n_features: int, structure: dict[str, Any]) -> MLPClassifier:
    """An untrained classifier with all attributes that its ``fit`` would set."""
    # scikit-learn sets the attributes itself in a first step, here on rows of zeros.
    fitted = MLPClassifier(**structure, random_state=0)
    fitted.partial_fit(np.zeros((len(classes), n_features)), classes, classes=classes)
    del fitted._optimizer  # the next training makes a new one
    fitted.random_state = None
    fitted.n_iter_, fitted.t_, fitted._no_improvement_count = 0, 0, 0
    fitted.loss_, fitted.best_loss_, fitted.loss_curve_ = np.inf, np.inf, []
    return fitted
