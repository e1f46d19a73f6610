"""Fits the last layer by logistic regression on its inputs, before all layers are fine-tuned [1].

[1] A. Kumar et al., "Fine-Tuning can Distort Pretrained Features and Underperform
Out-of-Distribution", ICLR 2022.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from skorch.utils import to_tensor
from torch import nn

from .._base.module_factory import uncompiled
from .net import Net, Rows, inputs_and_weights

# C of the logistic regression, on rows of mean length 1.
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
        self.skip = nn.Linear(n_features, n_classes, bias=False)
        nn.init.zeros_(self.skip.weight)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of inputs (n, ...)."""
        logits: torch.Tensor = self.body(X) + self.skip(X.flatten(1))
        return logits


def body_of(module: nn.Module) -> nn.Module:
    """The module inside a SkipConnection; any other module unchanged."""
    return module.body if isinstance(module, SkipConnection) else module


def linear_head(
    H: np.ndarray, y: np.ndarray, weights: np.ndarray | None, n_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n_classes, n_units) and biases (n_classes,) of a logistic regression on H (n, ...).

    A class without rows gets weights of 0, and a bias log(n + 1) below the smallest other bias.
    """
    model = LogisticRegression(C=_C, max_iter=_MAX_ITER).fit(H, y, sample_weight=weights)
    coef, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one logit, which is the difference of two
        coef, intercept = np.r_[-coef, coef] / 2, np.r_[-intercept, intercept] / 2
    W, b = np.zeros((n_classes, H.shape[1])), np.full(n_classes, intercept.min() - np.log1p(len(H)))
    W[model.classes_], b[model.classes_] = coef, intercept
    return W, b


def fit_head_(net: Net, head: str, rows: Rows, seed: int) -> None:
    """Fit the linear layer `head` of a net, and its skip connection, to labelled rows, in place."""
    y = rows.y.numpy()
    if len(np.unique(y)) < 2:
        return
    module = uncompiled(net.module_)
    last: Any = body_of(module).get_submodule(head)
    inputs, examples = _inputs_of(net, module, last, rows)
    parts = [(last.weight, inputs)]
    if isinstance(module, SkipConnection):
        parts.append((module.skip.weight, examples))
    if inputs.shape[:-1] != y.shape:
        raise ValueError(
            f"the last layer {head!r} must get one row for each of {len(y)} examples, but its "
            f"inputs have shape {inputs.shape}; pass fine_tuning='paper'"
        )
    drawn = np.sort(np.random.default_rng(seed).permutation(len(y))[:_MOST_ROWS])
    # Both parts are scaled to mean length 1, so that the penalty does not depend on their scales.
    lengths = [np.linalg.norm(part, axis=1).mean() or 1.0 for _, part in parts]
    scaled = [part[drawn] / length for (_, part), length in zip(parts, lengths, strict=True)]
    weights = None if rows.weights is None else rows.weights.numpy()[drawn]
    W, b = linear_head(np.concatenate(scaled, axis=1), y[drawn], weights, len(last.weight))
    widths = np.cumsum([part.shape[1] for part in scaled])[:-1]
    with torch.no_grad():
        of_parts = np.split(W, widths, axis=1)
        for (weight, _), part, length in zip(parts, of_parts, lengths, strict=True):
            weight.copy_(torch.from_numpy(part / length))
        if last.bias is not None:
            last.bias.copy_(torch.from_numpy(b))


def _inputs_of(
    net: Net, module: nn.Module, layer: nn.Module, rows: Rows
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, n_units) of a layer for all rows, and the rows themselves (n, n_features)."""
    inputs: list[np.ndarray] = []
    examples: list[np.ndarray] = []

    def note(layer: nn.Module, args: Any) -> None:
        inputs.append(args[0].float().cpu().numpy())

    handle, was_training = layer.register_forward_pre_hook(note), module.training
    module.eval()
    try:
        with torch.no_grad():
            for batch, _ in net.get_iterator(rows, training=False):
                X = to_tensor(inputs_and_weights(batch)[0], device=net.device)
                examples.append(X.flatten(1).cpu().numpy())
                module(X)
    finally:
        handle.remove()
        module.train(was_training)
    return np.concatenate(inputs), np.concatenate(examples)
