"""Theta0 or fine-tuned weights as scikit-learn's own MLPClassifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier
from sklearn.utils.validation import check_is_fitted

from .._network import BATCH_NORM_EPS, Architecture, Theta0

__all__ = ["ToSklearn", "sklearn_mlp"]

# Activation here -> scikit-learn's name of it.
ACTIVATIONS = {"relu": "relu", "tanh": "tanh"}


def folded_layers(theta0: Theta0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    r"""Weights (n_in, n_out) and biases (n_out,) of each layer, batch normalisation in them.

    At its running mean m and variance v it is affine,
    :math:`g (W h + b - m) / \sqrt{v + \epsilon} + c = (s W) h + s (b - m) + c` with
    :math:`s = g / \sqrt{v + \epsilon}`, in float64.
    """
    weights = [array.astype(np.float64) for array in theta0.coefs]
    biases = [array.astype(np.float64) for array in theta0.intercepts]
    if theta0.architecture.batch_norm:
        for layer in range(theta0.architecture.n_layers - 1):
            g, c, m, v = (
                theta0.arrays[f"norms.{layer}.{name}"].astype(np.float64)
                for name in ("weight", "bias", "running_mean", "running_var")
            )
            s = g / np.sqrt(v + BATCH_NORM_EPS)
            weights[layer] = weights[layer] * s
            biases[layer] = s * (biases[layer] - m) + c
    return weights, biases


def sklearn_mlp(
    theta0: Theta0, classes: np.ndarray, feature_names: Any = None, **params: Any
) -> MLPClassifier:
    """A fitted MLPClassifier of scikit-learn's with the given weights.

    Parameters
    ----------
    theta0 : Theta0
        Weights of any time, not only initial ones.
    classes : ndarray of shape (n_classes,)
        Labels, sorted.
    feature_names : ndarray of str, default=None
        Names of the columns of X.
    **params : object
        Its parameters.

    Returns
    -------
    sklearn.neural_network.MLPClassifier
        Float64 weights.

    Raises
    ------
    ValueError
        If theta0 is of a module, scikit-learn has no such activation, or the classes are not
        as many as logits.
    """
    architecture = theta0.architecture
    if not isinstance(architecture, Architecture):
        raise ValueError(
            "scikit-learn has multi-layer perceptrons only, and this theta0 is of the module "
            f"{architecture.module}; use to_module()"
        )
    own = _own_params(architecture)
    if taken := sorted(params.keys() & own.keys()):
        raise ValueError(
            f"{taken[0]}={params[taken[0]]!r} cannot be chosen: it is {own[taken[0]]!r}"
        )
    if len(classes) != architecture.n_classes:
        raise ValueError(
            f"classes={classes.tolist()} are {len(classes)}, but the network has "
            f"n_classes={architecture.n_classes}"
        )
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
    return fitted.set_params(**params)


def _own_params(architecture: Architecture) -> dict[str, Any]:
    if architecture.activation not in ACTIVATIONS:
        raise ValueError(
            f"scikit-learn's MLPClassifier has no activation={architecture.activation!r}; it can "
            f"have {sorted(ACTIVATIONS)}"
        )
    return {
        "hidden_layer_sizes": architecture.hidden_layer_sizes,
        "activation": ACTIVATIONS[architecture.activation],
    }


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


class ToSklearn:
    """What has a theta0, and can give it to scikit-learn's MLPClassifier."""

    theta0_: Theta0

    def to_sklearn(self, classes: Any = None, **params: Any) -> MLPClassifier:
        """Theta0 as a fitted MLPClassifier of scikit-learn's.

        Its ``partial_fit`` goes on from theta0, and so does its ``fit`` with
        ``warm_start=True``, where y holds each of the classes; the optimiser starts anew.
        With batch normalisation, weights are those at its running statistics, folded into the
        linear layers. For two classes its one output is the difference of the two logits.

        Parameters
        ----------
        classes : array-like of shape (n_classes,), default=None
            Labels of the task to come; None: 0, 1, ...
        **params : object
            Its parameters, such as ``warm_start`` or ``max_iter``; the network's own aside.

        Returns
        -------
        fitted : sklearn.neural_network.MLPClassifier
            One with float64 weights.

        Raises
        ------
        ValueError
            If scikit-learn has no such activation, which is so of "gelu", or the classes are
            not as many as logits, or theta0 is of a module.
        """
        check_is_fitted(self, "theta0_")
        n_classes = self.theta0_.architecture.n_classes
        labels = np.arange(n_classes) if classes is None else np.unique(np.asarray(classes))
        names = getattr(self, "feature_names_in_", None)
        return sklearn_mlp(self.theta0_, labels, names, **params)
