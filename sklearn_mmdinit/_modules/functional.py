"""Perturbed copies of any module that vmap can run: each has its own parameters."""

from __future__ import annotations

import torch
from torch.func import functional_call, vmap

from .._compute import StepRandom
from .hooks import unfused, untracked
from .network import ModuleNetwork
from .registry import parameter_stds

__all__ = ["functional_logits"]


def functional_logits(
    network: ModuleNetwork,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    """Logits of perturbed copies on one mini-batch, by ``torch.func.vmap``.

    The textbook form, and what the other samplers are tested against. It sees each copy on its
    own, whatever the module does with its parameters and its rows, as long as vmap has a form of
    it: recurrent layers, control flow by values and random numbers of its own have none.

    Parameters
    ----------
    network : ModuleNetwork
        The module at theta0; gradients flow to its parameters.
    X : Tensor of shape (B, ...)
        Mini-batch.
    n_copies : int
        K.
    scale : float
        The paper's s.
    random : StepRandom
        Source of the draws.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
    """
    module = network.module
    parameters = dict(module.named_parameters())
    eps = {
        name: random.normal(n_copies, *parameters[name].shape).mul_(std)
        for name, std in parameter_stds(module, scale).items()
    }

    def one(eps: dict[str, torch.Tensor]) -> torch.Tensor:
        perturbed = {name: parameters[name] + noise for name, noise in eps.items()}
        logits: torch.Tensor = functional_call(module, perturbed, (X.clone(),))
        return logits

    with unfused(), untracked(module):
        return vmap(one)(eps)
