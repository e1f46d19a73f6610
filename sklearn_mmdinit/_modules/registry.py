"""The layer types that are known, and the law of every parameter of a module."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from .._sampling import bias_std, weight_std
from .convolution import CONVOLUTION
from .embedding import EMBEDDING
from .layer_type import LayerType, Noise, Std, Stds, noise_by_vmap
from .linear import LINEAR

__all__ = ["LAYER_TYPES", "check_rules", "layer_type_of", "parameter_stds", "register_layer"]

# Scale and shift of a normalisation are learned but not perturbed.
_NORMALISATION = LayerType(lambda layer, scale: {})

LAYER_TYPES: dict[type[nn.Module], LayerType] = {
    nn.Linear: LINEAR,
    nn.Conv1d: CONVOLUTION,
    nn.Conv2d: CONVOLUTION,
    nn.Conv3d: CONVOLUTION,
    nn.Embedding: EMBEDDING,
    _BatchNorm: _NORMALISATION,
    nn.SyncBatchNorm: _NORMALISATION,
    _InstanceNorm: _NORMALISATION,
    nn.LayerNorm: _NORMALISATION,
    nn.GroupNorm: _NORMALISATION,
    nn.RMSNorm: _NORMALISATION,
}


def layer_type_of(layer: nn.Module) -> LayerType | None:
    """How a layer is perturbed; None where its type is not known, or it is changed from it."""
    known = _type_by_class(layer)
    # A reparametrised layer has other parameters than its type.
    return known if known and known.stds(layer, 1.0).keys() <= _own_names(layer) else None


def _own_names(layer: nn.Module) -> set[str]:
    own = layer.named_parameters(recurse=False, remove_duplicate=False)
    return {name for name, _ in own}


def _type_by_class(layer: nn.Module) -> LayerType | None:
    """What is known of a layer whose forward is that of its type, whatever its parameters."""
    kinds: tuple[Any, ...] = type(layer).__mro__
    for kind in kinds:
        known = LAYER_TYPES.get(kind)
        if known is None:
            continue
        same = type(layer).forward is kind.forward and "forward" not in vars(layer)
        return known if same and (known.serves is None or known.serves(layer)) else None
    return None


def check_rules(module: nn.Module) -> None:
    """Raise unless what rules of :func:`register_layer` say of a module's layers makes sense.

    Raises
    ------
    TypeError
        If a rule does not return a dict, or a standard deviation is no number and no tensor.
    ValueError
        If it names what the layer has not, or a standard deviation is not finite and >= 0.
    """
    for place, layer in module.named_modules():
        known = _type_by_class(layer)
        if known is None or not known.by_user:
            continue
        rule = f"stds of register_layer for {type(layer).__name__}, the layer {place!r},"
        stds = known.stds(layer, 1.0)
        if not isinstance(stds, Mapping):
            raise TypeError(f"{rule} must return a dict, got {stds!r}")
        for name, std in stds.items():
            # What is reparametrised is no parameter, but an attribute still.
            if not (isinstance(name, str) and hasattr(layer, name)):
                valid = sorted(_own_names(layer))
                raise ValueError(f"{rule} must name parameters, some of {valid}, got {name!r}")
            if not isinstance(std, Real | torch.Tensor):
                raise TypeError(f"{rule} must return numbers or tensors, got {name!r}: {std!r}")
            value = torch.as_tensor(std)
            if not bool(((value >= 0) & (value < math.inf)).all()):
                raise ValueError(f"{rule} must return finite numbers >= 0, got {name!r}: {std!r}")


def parameter_stds(module: nn.Module, scale: float) -> dict[str, Std]:
    """Standard deviation of each parameter's perturbation, by name.

    Parameters of known layers have the law of their type. Of any other, an array with two axes
    or more counts as a weight, with n_in as :mod:`torch.nn.init` counts it (the entries of a
    slice of the first axis), and one with fewer as a bias, with all its entries as n_out. A
    parameter with several names has the law of the first one.

    Parameters
    ----------
    module : nn.Module
        Any; parameters that require no gradient are not perturbed, since fine-tuning will not
        move them either.
    scale : float
        The paper's s.

    Returns
    -------
    dict of str to float or Tensor
        In the order of ``module.named_parameters()``; without those that stay.
    """
    laws: dict[int, Std | None] = {}
    for layer in module.modules():
        known = layer_type_of(layer)
        own = None if known is None else known.stds(layer, scale)
        for name, parameter in layer.named_parameters(recurse=False):
            law = _bare_std(parameter, scale) if own is None else own.get(name)
            laws.setdefault(id(parameter), law)
    stds = {}
    for name, parameter in module.named_parameters():
        law = laws[id(parameter)]
        if law is not None and parameter.requires_grad:
            stds[name] = law
    return stds


def _bare_std(parameter: nn.Parameter, scale: float) -> float:
    numbers = max(parameter.numel(), 1)
    if parameter.ndim < 2:
        return bias_std(numbers, scale)
    return weight_std(numbers // max(len(parameter), 1), scale)


def register_layer(layer_class: type[nn.Module], stds: Stds, noise: Noise | None = None) -> None:
    r"""Make a type of layer known, so that its perturbed copies run in one pass.

    For layers that take one tensor whose first axis counts rows, are linear in their parameters
    and treat each row on its own. Other modules need no registration: ``sampler="functional"``
    takes what :func:`torch.func.vmap` can run as it is, at the price of a slower step; recurrent
    layers of PyTorch's it cannot. What is registered holds in this process:
    workers, and who unpickles an initializer, register it too.

    Parameters
    ----------
    layer_class : type
        Subclass of :class:`torch.nn.Module`. Its own subclasses are known too where they do not
        change ``forward``. A type that is known already gets the new rule.
    stds : callable
        Takes a layer and the paper's s; returns a dict of the standard deviation of each
        parameter's perturbation by its name in the layer, a number or a tensor that broadcasts
        to the parameter. The paper has :math:`s / \sqrt{n_{in}}` for a weight, :math:`n_{in}`
        weights being summed up in an output, and :math:`s / \sqrt{n_{out}}` for a bias.
        Parameters without an entry stay; an empty dict makes the type a normalisation. What it
        returns is checked where a module has such a layer.
    noise : callable, default=None
        A faster form than the default, :func:`torch.func.vmap` of the layer. Takes a layer, its
        inputs of shape (K, B, ...), or (1, B, ...) where all copies have the same, and a dict of
        perturbations of shape (K, ...) by name; returns what they add to the outputs, of shape
        (K, B, ...).

    Raises
    ------
    TypeError
        If `layer_class` is no subclass of Module, or a rule cannot be called.

    See Also
    --------
    MMDInitializer : Its ``samplers_`` says how each layer is perturbed.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit import register_layer
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self, n):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(n))
    ...
    ...     def forward(self, x):
    ...         return x * self.weight
    >>> register_layer(Scale, lambda layer, s: {"weight": s})  # one weight an output
    """
    if not (inspect.isclass(layer_class) and issubclass(layer_class, nn.Module)):
        raise TypeError(f"layer_class must be a subclass of nn.Module, got {layer_class!r}")
    rules: dict[str, Any] = {"stds": stds} | ({} if noise is None else {"noise": noise})
    for name, rule in rules.items():
        if not callable(rule):
            raise TypeError(f"{name} must be callable, got {rule!r}")
    LAYER_TYPES[layer_class] = LayerType(stds, noise or noise_by_vmap, by_user=True)
