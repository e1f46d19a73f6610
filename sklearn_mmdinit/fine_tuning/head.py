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
from skorch.utils import to_tensor
from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.data import Subset

from .._base.module_factory import uncompiled
from .._base.validation import warn_user
from ..networks.passes import hooked
from .net import Net, Rows, inputs_and_weights

# C of the logistic regression, on rows of length 1.
_C = 100.0
# The last layer is fitted to at most this many rows: with more, fine-tuning matters more.
_MOST_ROWS = 5_000
_MAX_ITER = 10_000


class SkipConnection(nn.Module):
    """Adds a linear map of the input to the logits of a module.

    The logits then depend linearly on the row and on the last hidden activations. The map begins
    at 0.
    """

    def __init__(self, body: nn.Module, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        # In single precision, as every trained module, whatever PyTorch's default type is.
        self.skip = nn.Linear(n_features, n_classes, bias=False, dtype=torch.float32)
        nn.init.zeros_(self.skip.weight)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of inputs (n, ...)."""
        logits: torch.Tensor = self.body(X) + self.skip(X.flatten(1))
        return logits


def body_of(module: nn.Module) -> nn.Module:
    """The module without torch.compile and without a SkipConnection around it."""
    module = uncompiled(module)
    return module.body if isinstance(module, SkipConnection) else module


def linear_head(
    H: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None,
    n_classes: int,
    fit_intercept: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n_classes, n_units) and biases (n_classes,) of a logistic regression on H (n, ...).

    A class without rows gets weights of 0. Its bias is the smallest other bias minus log(n + 1).
    """
    C, n_rows = _C, len(y)
    if n_rows < 4 * n_classes:
        # With fewer than four rows a class, scikit-learn would warn that y looks like the target of
        # a regression. Repeating each row four times, with a quarter of C, is the same problem.
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
    """Fit the linear layer `head` of a net, and its skip connection, to labelled rows, in place."""
    drawn: Any = np.sort(np.random.default_rng(seed).permutation(len(rows))[:_MOST_ROWS])
    y = rows.y.numpy()[drawn]
    if len(np.unique(y)) < 2:
        warn_user(
            "all labelled rows are of one class, so the last layer is not fitted before training: "
            "pass rows of several classes to fit, or to the first partial_fit"
        )
        return
    module = uncompiled(net.module_)
    last: Any = body_of(module).get_submodule(head)
    layers = [last, module.skip] if isinstance(module, SkipConnection) else [last]
    inputs = _inputs_of(net, module, layers, Subset(rows, drawn))
    if (shape := inputs[0].shape)[:-1] != y.shape:
        raise ValueError(
            f"the last layer {head!r} must get one row for each of {len(y)} examples, and it gets "
            f"an input of shape {shape}; pass fine_tuning='paper'"
        )
    if not all(np.isfinite(part).all() for part in inputs):
        raise ValueError("inputs of the last layer are not finite: X is too large; standardize X")
    # Inputs are scaled, so that the penalty does not depend on their scale. Each row of hidden
    # activations is divided by its own length, because its direction describes the example. Rows of
    # the skip connection are divided by their mean length.
    lengths = [np.linalg.norm(part, axis=1).mean() or 1.0 for part in inputs]
    hidden, *row = inputs
    scaled = [
        normalize(hidden),
        *(part / length for part, length in zip(row, lengths[1:], strict=True)),
    ]
    weights = None if rows.weights is None else rows.weights.numpy()[drawn]
    features, has_bias = np.concatenate(scaled, axis=1), last.bias is not None
    W, b = linear_head(features, y, weights, last.out_features, fit_intercept=has_bias)
    widths = np.cumsum([part.shape[1] for part in scaled])[:-1]
    of_parts = np.split(W, widths, axis=1)
    for layer, part, length in zip(layers, of_parts, lengths, strict=True):
        _set_(layer, "weight", part / length)
    if has_bias:
        _set_(last, "bias", b)


def _inputs_of(net: Net, module: nn.Module, layers: list[Any], rows: Any) -> list[np.ndarray]:
    """The inputs of each layer for all rows, in arrays (n, n_units)."""
    inputs: dict[nn.Module, list[np.ndarray]] = {layer: [] for layer in layers}

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        inputs[layer].append(args[0].float().cpu().numpy())

    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), hooked(layers, note):
            for batch, _ in net.get_iterator(rows, training=False):
                module(to_tensor(inputs_and_weights(batch)[0], device=net.device))
    finally:
        module.train(was_training)
    return [np.concatenate(parts) for parts in inputs.values()]


def can_be_fitted(layer: nn.Module) -> bool:
    """Whether a linear layer can get arbitrary weights: not if it is frozen, or orthogonal."""
    if not all(parameter.requires_grad for parameter in layer.parameters()):
        return False
    parametrized = [name for name in ("weight", "bias") if is_parametrized(layer, name)]
    layer = copy.deepcopy(layer)
    for name in parametrized:
        new = -2.0 * getattr(layer, name).detach()  # another length and sign
        try:
            setattr(layer, name, new)
        except Exception:  # of any type, if the parametrization has no inverse for these values
            return False
        if not torch.allclose(getattr(layer, name), new, rtol=1e-2, atol=1e-3):
            return False
    return True


@torch.no_grad()
def _set_(layer: nn.Module, name: str, values: np.ndarray) -> None:
    """Set a parameter of a layer, which may be parametrized."""
    before = getattr(layer, name)
    new = torch.from_numpy(values).to(before)
    if is_parametrized(layer, name):
        setattr(layer, name, new)
    else:
        before.copy_(new)
