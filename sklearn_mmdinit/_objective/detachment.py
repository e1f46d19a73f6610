"""Detachment, L_iod: predictions depend on the input."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, cast

import torch

from .._modules import ModuleNetwork
from .._network import ACTIVATIONS, MLP
from .jacobian import TINY, module_jacobian_norms

__all__ = ["JACOBIANS", "detachment", "jacobian_norms"]

# What the Jacobian of a hidden layer is with respect to.
JACOBIANS = ("pre_activation", "activation")


@singledispatch
def jacobian_norms(module: Any, X: torch.Tensor, at: str = "pre_activation") -> torch.Tensor:
    """Norms of the rows of the Jacobians of the logits, unperturbed.

    Under batch normalisation the pre-activation is the activation's input, and the
    statistics of the mini-batch count as constants. This is the closed form for a perceptron.

    Parameters
    ----------
    module : MLP
        The network at theta0, in training mode where it has batch normalisation.
    X : Tensor of shape (B, n_features)
        Mini-batch.
    at : {"pre_activation", "activation"}, default="pre_activation"
        Of a hidden layer.

    Returns
    -------
    Tensor of shape (B, d, L)
        Norm of the i-th row of the Jacobian with respect to the input (l = 0) and to the
        pre-activation or activation of each hidden layer (l = 1 .. L - 1).
    """
    activation = ACTIVATIONS[module.architecture.activation]
    slopes, gains, H = [], [], X
    for layer, linear in enumerate(module.linear_layers[:-1]):
        H = linear(H)
        if module.architecture.batch_norm:
            norm = module.norm_layers[layer]
            running = cast("torch.Tensor", norm.running_var)
            variance = H.var(dim=0, correction=0) if norm.training else running
            gains.append(norm.weight * (variance + norm.eps).rsqrt())
            H = norm(H)
        slopes.append(activation.derivative(H))
        H = activation.function(H)
    rows = module.linear_layers[-1].weight.expand(len(X), -1, -1)
    norms = []
    for layer in range(len(slopes) - 1, -1, -1):
        at_activation, rows = rows, rows * slopes[layer].unsqueeze(1)
        norms.append(_row_norms(at_activation if at == "activation" else rows))
        if gains:
            rows = rows * gains[layer]
        rows = rows @ module.linear_layers[layer].weight
    norms.append(_row_norms(rows))
    return torch.stack(norms[::-1], dim=-1)


jacobian_norms.register(ModuleNetwork, module_jacobian_norms)


def _row_norms(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(-1).add(TINY).sqrt()


def detachment(
    module: MLP | ModuleNetwork, X: torch.Tensor, at: str = "pre_activation"
) -> torch.Tensor:
    r"""L_iod: how far Jacobian rows are from unit norm at the worst layer.

    :math:`E_x [\frac 1 d \sum_i \max_l (1 - \|J_i^{(l:L)}(x_l)\|)^2]`.

    Parameters
    ----------
    module : MLP or ModuleNetwork
        The network at theta0.
    X : Tensor of shape (B, ...)
        Mini-batch.
    at : {"pre_activation", "activation"}, default="pre_activation"
        As in :func:`jacobian_norms`.

    Returns
    -------
    Tensor, scalar
        Eq. (ignore_loss) of the paper.
    """
    return (1.0 - jacobian_norms(module, X, at)).square().amax(dim=-1).mean()
