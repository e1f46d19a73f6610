"""What has to be known of a type of layer to perturb it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

__all__ = ["LayerType", "Noise", "Std", "Stds"]

# Of a parameter's perturbation: a number, or one for each entry, of a shape that broadcasts.
Std = float | torch.Tensor
Stds = Callable[[Any, float], Mapping[str, Std]]
Noise = Callable[[Any, torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]


class _Alone(nn.Module):
    """A layer without its hooks, which see its inputs and its output with the noise in it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, H: torch.Tensor) -> Any:
        return self.layer.forward(H)


def noise_by_vmap(
    layer: nn.Module, H: torch.Tensor, eps: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """What perturbations add to the outputs: those of the layer with them as its parameters.

    Parameters
    ----------
    layer : nn.Module
        Linear in its parameters.
    H : Tensor of shape (K, B, ...) or (1, B, ...)
        Inputs of each copy, or of all.
    eps : mapping of str to Tensor of shape (K, ...)
        Perturbations by the parameters' names.

    Returns
    -------
    Tensor of shape (K, B, ...)
    """
    # A parameter that is not perturbed has no share in it.
    still = {
        name: torch.zeros_like(parameter)
        for name, parameter in layer.named_parameters(recurse=False)
        if name not in eps
    }

    alone = _Alone(layer)

    def one(eps: dict[str, torch.Tensor], H: torch.Tensor) -> Any:
        own = {f"layer.{name}": value for name, value in {**still, **eps}.items()}
        return functional_call(alone, own, (H,))

    if len(H) == 1:
        return vmap(one, in_dims=(0, None))(dict(eps), H[0])
    return vmap(one)(dict(eps), H)


@dataclass(frozen=True)
class LayerType:
    """How layers of a type are perturbed.

    A known layer is linear in its parameters, so that a perturbation adds to its outputs what
    the layer would return with the perturbation in place of its parameters.

    Parameters
    ----------
    stds : callable
        Takes a layer and the paper's s; returns the standard deviation of each parameter's
        perturbation by name. A parameter that is not named stays; a type of which all stay is
        taken for a normalisation.
    noise : callable, default=noise_by_vmap
        Takes and returns what :func:`noise_by_vmap` does.
    patches : callable, default=None
        Takes a layer and inputs (N, ...); returns the rows (N, P, groups, n_in) whose products
        with the weights are the outputs at P positions. None: there is no form by gram.
    channels : int, default=-1
        Axis of the outputs that counts units.
    serves : callable, default=None
        Whether a layer with the options that it has is linear in its parameters; None: always.
    by_user : bool, default=False
        Whether a user has made it known, whose rule may be wrong.
    """

    stds: Stds
    noise: Noise = noise_by_vmap
    patches: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    channels: int = -1
    serves: Callable[[Any], bool] | None = None
    by_user: bool = False
