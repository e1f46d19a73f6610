"""Fits the last layer by logistic regression on its inputs, before all layers are fine-tuned [1].

[1] A. Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform
Out-of-Distribution", ICLR 2022.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.utils import check_array
from torch import nn
from torch.utils.data import Subset

from .._base.environment import array_of
from .._base.module_factory import uncompiled
from .._base.validation import check_argument, shortened, warn_if_unscaled, warn_user
from ..networks.builder import examples_for, hidden_of, needs_integers
from ..networks.info import N_EXAMPLES, inspect_logits, is_plain_linear
from ..networks.passes import hooked
from .net import Net, Rows

# C of the logistic regression, on features of unit norm. C = 30 on uncentred features gave -0.1 to
# +0.6 points more than this on centred ones (n.s.), with 1 to 100 labels of each class.
_C = 100.0
# The classifiers fit the last layer to at most this many examples: with more, fine-tuning matters
# more.
_MOST_ROWS = 5_000
_MAX_ITER = 10_000


def linear_head(
    H: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
    n_classes: int,
    fit_intercept: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n_classes, n_units) and biases (n_classes,) of a regression on H (n, n_units).

    A class without examples gets weights of 0. Its bias is the smallest other bias minus
    log(n + 1).
    """
    C, n_rows = _C, len(y)
    if n_rows < 4 * n_classes:
        # With fewer than four examples a class, scikit-learn would warn that y looks like the
        # target of a regression. Repeating each four times, with a quarter of C, is the same
        # problem.
        H, y, C = np.repeat(H, 4, axis=0), np.repeat(y, 4), C / 4
        weights = None if weights is None else np.repeat(weights, 4)
    model = LogisticRegression(C=C, fit_intercept=fit_intercept, max_iter=_MAX_ITER)
    model.fit(H, y, sample_weight=weights)
    coef, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one logit, which is the difference of two
        coef, intercept = np.r_[-coef, coef] / 2, np.r_[-intercept, intercept] / 2
    W, b = np.zeros((n_classes, H.shape[1])), np.full(n_classes, intercept.min() - np.log1p(n_rows))
    W[model.classes_], b[model.classes_] = coef, intercept
    return W, b


def fit_head_(net: Net, head: str, rows: Rows, seed: int) -> None:
    """Fit the linear layer `head` of a net to labelled examples, in place."""
    drawn: Any = np.sort(np.random.default_rng(seed).permutation(len(rows))[:_MOST_ROWS])
    y = rows.y.numpy()[drawn]
    if len(np.unique(y)) < 2:
        warn_user(
            "The classification layer was not fitted before fine-tuning, because all training "
            "examples are of one class; pass several classes, with sample weights above 0"
        )
        return
    layer: Any = uncompiled(net.module_).get_submodule(head)
    H = _inputs_of(net, layer, Subset(rows, drawn))
    _fit_layer_(layer, H, y, None if rows.weights is None else rows.weights.numpy()[drawn])


def _fit_layer_(layer: Any, H: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> None:
    """Fit a linear layer to its inputs H (n, n_units) and the numbers of their classes."""
    if not np.isfinite(H).all():
        raise ValueError("inputs of the last layer are not finite; standardize X")
    # The regression has centred features of unit norm, because their direction describes the
    # example, and because the penalty then does not depend on their scale. The layer gets
    # activations as they are, and its bias takes up their mean.
    has_bias = layer.bias is not None
    H = H.astype(np.float64)
    mean = H.mean(axis=0) if has_bias else np.zeros(H.shape[1])
    norm = np.linalg.norm(H - mean, axis=1).mean() or 1.0
    W, b = linear_head(normalize(H - mean), y, weights, layer.out_features, fit_intercept=has_bias)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(W / norm))
        if has_bias:
            layer.bias.copy_(torch.from_numpy(b - W @ mean / norm))


def linear_probe_(module: nn.Module, X: Any, y: Any) -> nn.Module:
    """Fit the last layer of a module to few labelled examples, in place: linear probing.

    A regularised logistic regression on the layer's inputs gives its weights. Afterwards, train all
    layers yourself at a small learning rate, such as 1e-4, or use :class:`NetClassifier`, which
    does both. If a pre-trained module is fine-tuned with a random last layer, it loses much of what
    it has learned.

    Parameters
    ----------
    module : nn.Module
        Returns logits (n, n_classes), by a last nn.Linear with parameters of its own. This layer
        changes; other layers, running statistics and the mode do not.
    X : array-like or Tensor of shape (n_samples, ...)
        Labelled examples, as the module takes them; they get the precision of the module.
    y : array-like or Tensor of shape (n_samples,)
        Their classes, whole numbers from 0 to n_classes - 1, at least two different ones.

    Returns
    -------
    module : nn.Module
        The one given.

    Raises
    ------
    ValueError
        If `y` holds other values or one class, or the module does not end in an nn.Linear.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import linear_probe_
    >>> X, y = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1, 0])
    >>> net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 2))
    >>> linear_probe_(net, X, y)(X).argmax(1)
    tensor([0, 1, 0])
    """
    check_argument("module", module, nn.Module)
    net, classes = copy.deepcopy(uncompiled(module)).eval(), np.asarray(array_of(y))
    rows = check_array(array_of(X), dtype=None, allow_nd=True)
    if not needs_integers(net):
        warn_if_unscaled(rows)
    n_classes, head = inspect_logits(net, examples_for(net, rows[:N_EXAMPLES]))
    if not is_plain_linear(net, head):
        raise ValueError(
            f"the module {type(net).__name__} must end in a plain nn.Linear that returns the "
            "logits, with parameters that need a gradient and are neither shared nor parametrised"
        )
    used = np.unique(classes)
    if classes.dtype.kind not in "iu" or len(used) < 2 or used[0] < 0 or used[-1] >= n_classes:
        raise ValueError(
            f"y must hold integers from 0 to {n_classes - 1}, at least two different ones, got "
            f"{shortened(str(used.tolist()))} of {used.dtype}; sklearn's LabelEncoder gives them"
        )
    _fit_layer_(uncompiled(module).get_submodule(head), hidden_of(net, head, rows), classes, None)
    return module


def _inputs_of(net: Net, layer: nn.Module, rows: Any) -> np.ndarray:
    """The inputs (n, n_units) of a layer of a net in evaluation mode."""
    inputs: list[np.ndarray] = []
    with hooked([layer], lambda layer, args, output: inputs.append(array_of(args[0].float()))):
        net.forward(rows)
    return np.concatenate(inputs)
