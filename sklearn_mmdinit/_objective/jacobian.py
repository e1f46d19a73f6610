"""Norms of the Jacobians of any module, by autograd."""

from __future__ import annotations

import math

import torch

from .._modules import ModuleNetwork

__all__ = ["TINY", "NoJacobianError", "module_jacobian_norms"]

# Added to squared norms under a root, whose slope at 0 is infinite.
TINY = 1e-12


class NoJacobianError(ValueError):
    """Raised where there is nothing for a Jacobian of the logits to be with respect to."""


def module_jacobian_norms(
    module: ModuleNetwork, X: torch.Tensor, at: str = "pre_activation"
) -> torch.Tensor:
    """Norms of the rows of the Jacobians of the logits, unperturbed.

    With respect to the input, where it is not of integers, and to what each layer before the
    last one returns, whatever its shape and wherever it goes: the Frobenius norm over all
    numbers of one example. An output that the logits do not depend on is left out, and where
    some of them do not, as behind a head that another class has to itself, theirs counts as 1.

    Parameters
    ----------
    module : ModuleNetwork
        The module at theta0.
    X : Tensor of shape (B, ...)
        Mini-batch.
    at : {"pre_activation"}, default="pre_activation"
        What a layer returns; where activations are is not known of a module.

    Returns
    -------
    Tensor of shape (B, d, L)
        Norm of the i-th row of each of L Jacobians, in the order of the pass.

    Raises
    ------
    NoJacobianError
        If there is nothing that the logits could depend on.
    """
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        logits, taps = module.pre_activations(X)
        norms: list[list[torch.Tensor]] = []
        for i in range(logits.shape[1] if taps else 0):
            # Rows of the mini-batch do not depend on each other: one sum serves all of them.
            slopes = torch.autograd.grad(
                logits[:, i].sum(),
                [tap for tap, _ in taps],
                create_graph=differentiable,
                retain_graph=True,
                allow_unused=True,
            )
            norms.append(
                [
                    _norms(slope.movedim(axis, 0), len(X))
                    for slope, (_, axis) in zip(slopes, taps, strict=True)
                    if slope is not None
                ]
            )
    if not any(norms):
        raise NoJacobianError(
            f"the logits of {module.architecture.module} depend on no input, those of integers "
            "aside, and on no known layer before the last one: there is no Jacobian for the "
            "detachment term; set detachment_weight=0"
        )
    return _without_others_heads(torch.stack([torch.stack(own, dim=-1) for own in norms], dim=1))


def _without_others_heads(norms: torch.Tensor) -> torch.Tensor:
    """Norms (B, d, L) with 1 where a class is on no way from an output, and others are.

    Autograd gives zeros there. An output that no class feels is dead, and stays: that is what
    detachment is about.
    """
    felt = (norms.detach() > 1.001 * math.sqrt(TINY)).any(dim=0)
    return torch.where(felt.any(dim=0) & ~felt, torch.ones_like(norms), norms)


def _norms(slope: torch.Tensor, n_rows: int) -> torch.Tensor:
    # (B, ...), or more rows than one for each example.
    return slope.reshape(n_rows, -1).square().sum(-1).add(TINY).sqrt()
