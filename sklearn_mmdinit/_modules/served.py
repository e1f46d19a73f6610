"""Which sampler can serve a module: hooks where they see all, else the functional one."""

from __future__ import annotations

from dataclasses import replace

import torch

from .._compute import StepRandom
from .copies import copied_logits
from .functional import functional_logits
from .hooks import layer_named
from .network import ModuleNetwork
from .registry import parameter_stds

__all__ = ["served"]

# How far logits of a copy may be from those of the module alone, of their own size: rounding of
# sums in another order, and none of what a perturbation does.
_ROUNDING = 1e-3


def served(network: ModuleNetwork, X: torch.Tensor, sampler: str) -> ModuleNetwork:
    """The network with the sampler that can serve it.

    Parameters
    ----------
    network : ModuleNetwork
        The module.
    X : Tensor of shape (B, ...)
        A few examples.
    sampler : {"auto", "direct", "gram", "functional"}
        What is asked for; "auto" takes the functional sampler only where hooks cannot serve.

    Returns
    -------
    ModuleNetwork
        With ``why_functional`` set where hooks are not to serve.

    Raises
    ------
    ValueError
        If the module cannot be perturbed so; the message names the layer.
    """
    name = network.architecture.module
    if not parameter_stds(network.module, 1.0):
        raise ValueError(f"the module {name} has no parameters to perturb that require a gradient")
    if sampler == "functional":
        reason = "it was asked for"
    elif (found := _reason_against_hooks(network, X)) is None:
        return network
    else:
        reason = found
    if sampler in ("direct", "gram"):
        raise ValueError(
            f"sampler={sampler!r} cannot perturb the module {name}: {reason}; use "
            "sampler='functional' or 'auto', or make the layer's type known with register_layer"
        )
    with torch.enable_grad(), layer_named(network.module) as called:
        try:
            logits = functional_logits(network, X, 2, 1.0, StepRandom(0, X.device))
        except Exception as error:
            raise ValueError(
                f"the functional sampler ({reason}) cannot perturb the module {name}: {called()} "
                f"fails under torch.func.vmap with {type(error).__name__}: {error}"
            ) from error
    if failed := _reason_against_gradient(network, logits):
        raise ValueError(
            f"the functional sampler ({reason}) cannot perturb the module {name}: {failed}"
        )
    return replace(network, why_functional=reason)


def _reason_against_hooks(network: ModuleNetwork, X: torch.Tensor) -> str | None:
    """Why perturbed copies cannot be one pass of the module; None where they can."""
    if away := network.trace.away:
        return f"the parameters {list(away)} act elsewhere than in the layers that are known"
    if reads := network.trace.reads:
        return f"{reads[0]} looks at values of a tensor, which mixes the copies"
    with torch.enable_grad(), layer_named(network.module) as called:
        # A copy without noise, beside one that has some, computes what it does alone.
        for alone in (0, 1):
            mask = torch.ones(2, dtype=torch.float32, device=X.device)
            mask[alone] = 0.0
            try:
                plain = copied_logits(
                    network, X, 1, 1.0, "direct", StepRandom(0, X.device), mask[alone : alone + 1]
                )
                both = copied_logits(network, X, 2, 1.0, "direct", StepRandom(0, X.device), mask)
            except Exception as error:
                return f"{called()} fails with {type(error).__name__}: {error}"
            size = float(plain.detach().abs().max()) + 1.0
            if not float((both[alone] - plain[0]).detach().abs().max()) < _ROUNDING * size:
                return "its rows depend on each other, or another axis than the first counts them"
    return _reason_against_gradient(network, both)


def _reason_against_gradient(network: ModuleNetwork, logits: torch.Tensor) -> str | None:
    """Why copies cannot be differentiated; None where they can."""
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not logits.requires_grad:
        return None
    try:
        torch.autograd.grad(logits.sum(), learned, allow_unused=True)
    except Exception as error:
        return (
            f"its gradient fails with {type(error).__name__}: {str(error).partition(chr(10))[0]} "
            "(layers must not be computed again for it, as torch.utils.checkpoint does)"
        )
    return None
