"""Modules whose hidden weights can be scaled without changing the function."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .hooks import aside
from .trace import Trace

__all__ = ["chain_of"]

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)

# So large and so small that what bends or is cut off anywhere shows.
_FACTORS = (2.0**12, 2.0**-12)


def chain_of(module: nn.Module, found: Trace, examples: torch.Tensor) -> tuple[str, ...]:
    """Names of a module's layers, if each hands a scale of its output on to the next one.

    So it is where the perturbed layers are linear layers and convolutions that are called one
    after the other, each once and with weights of its own that are all learned, and what lies
    between them is positively homogeneous. Multiply a layer's weights by c, its biases by that and
    the factors before it, and divide the last layer's weights by the product: the function stays.
    Whether it does is tried on a copy in double precision, one layer at a time.

    Parameters
    ----------
    module : nn.Module
        On the CPU; it is left as it is.
    found : Trace
        Of a pass of it.
    examples : Tensor of shape (B, ...)
        A few examples.

    Returns
    -------
    tuple of str
        The first one first; empty where the function changes, or there are no such layers.
    """
    names = tuple(call.layer for call in found.calls)
    if len(names) < 2 or found.reads or found.reused or found.away or found.last != len(names) - 1:
        return ()
    layers = [module.get_submodule(name) for name in names]
    # Exactly these: a subclass may do something else with its weights.
    if any(type(layer) not in _LAYERS or not _is_learned(layer) for layer in layers):
        return ()
    return names if _hands_on(module, names, examples) else ()


def _is_learned(layer: nn.Module) -> bool:
    # Under a parametrisation the weight is no parameter of the layer's own.
    own = dict(layer.named_parameters(recurse=False))
    return "weight" in own and all(parameter.requires_grad for parameter in own.values())


def _hands_on(module: nn.Module, names: Sequence[str], examples: torch.Tensor) -> bool:
    """Whether the logits stay where any hidden layer is scaled."""
    tried = copy.deepcopy(module).double()
    layers = [tried.get_submodule(name) for name in names]
    X = examples.double() if examples.is_floating_point() else examples
    of_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
    with torch.no_grad(), aside():
        # What else is learned will not stay where it is, such as a shift of 0.
        for parameter in tried.parameters():
            if parameter.requires_grad and id(parameter) not in of_layers:
                parameter.add_(torch.randn_like(parameter))
        before = tried(X.clone())
        for at in range(len(layers) - 1):
            for factor in _FACTORS:
                _scale_(layers[at:], factor)
                same = torch.allclose(tried(X.clone()), before, rtol=1e-9, atol=1e-12)
                _scale_(layers[at:], 1.0 / factor)  # a power of two: nothing is rounded
                if not same:
                    return False
    return True


def _scale_(layers: Sequence[Any], factor: float) -> None:
    """Scale the first one's outputs, and hand that on to the last one, which takes it out."""
    first, *_, last = layers
    first.weight.mul_(factor)
    for layer in layers[:-1]:
        if layer.bias is not None:
            layer.bias.mul_(factor)
    last.weight.div_(factor)
