"""The law of a perturbation, and the layer types whose perturbed copies run in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

# Of a parameter's perturbation: a number, or one for each entry, of a shape that broadcasts.
Std = float | torch.Tensor
Stds = Callable[[Any, float], Mapping[str, Std]]
Noise = Callable[[Any, torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]


@dataclass(frozen=True)
class LayerType:
    """How layers of a type are perturbed."""

    # Takes a layer and the paper's s; returns the standard deviation of each parameter's
    # perturbation by name. A parameter that is not named stays; a type of which all stay is a
    # normalisation.
    stds: Stds
    # Takes a layer, inputs (K, B, ...) or (1, B, ...) and perturbations (K, ...) by name; returns
    # what they add to the outputs, (K, B, ...). None: of a normalisation, which has none.
    noise: Noise | None = None
    # Takes a layer and inputs (N, ...); returns the rows (N, P, groups, n_in) whose products with
    # the weights are the outputs at P positions. None: there is no form by gram.
    patches: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    channels: int = -1  # axis of the outputs that counts units
    # Whether a layer with the options that it has is linear in its parameters; None: always.
    serves: Callable[[Any], bool] | None = None


def paper_std(parameter: torch.Tensor, scale: float) -> float:
    """The paper's law: s / sqrt(n_in) of weights (n_out, n_in, ...), s / sqrt(n_out) of biases."""
    n = max(parameter.numel(), 1)
    if parameter.ndim >= 2:
        n //= max(len(parameter), 1)
    return scale / math.sqrt(n)


def _unit_stds(layer: Any, scale: float) -> dict[str, Std]:
    """Of a layer whose units have a row of weights each, and a bias perhaps."""
    own = {"weight": layer.weight, "bias": layer.bias}
    return {name: paper_std(value, scale) for name, value in own.items() if value is not None}


def _linear_noise(
    layer: nn.Linear, H: torch.Tensor, eps: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """H E^T + e."""
    K = len(next(iter(eps.values())))
    shape = (K, *H.shape[1:-1], layer.out_features)
    noise = H.new_zeros(())
    if "weight" in eps:
        # (n, rows of a copy, n_in) @ (K, n_in, n_out), n being K or 1.
        noise = H.flatten(1, -2) @ eps["weight"].mT
    if "bias" in eps:
        noise = noise + eps["bias"].unsqueeze(1)
    return noise.expand(K, H[0, ..., 0].numel(), -1).reshape(shape)


def _linear_patches(layer: nn.Linear, H: torch.Tensor) -> torch.Tensor:
    return H.reshape(len(H), -1, 1, layer.in_features)


def _embedding_stds(layer: nn.Embedding | nn.EmbeddingBag, scale: float) -> dict[str, Std]:
    """An output is one weight, so that n_in is 1; the row of the padding stays 0."""
    if layer.padding_idx is None:
        return {"weight": scale}
    std = layer.weight.new_full((layer.num_embeddings, 1), scale)
    std[layer.padding_idx] = 0.0
    return {"weight": std}


def _embedding_noise(
    layer: nn.Embedding, H: torch.Tensor, eps: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    tables = eps["weight"]  # (K, rows, width)
    copy = torch.arange(len(tables), device=H.device).view(-1, *[1] * (H.ndim - 1))
    return tables[copy, H]


Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d

_CONVOLUTIONS: dict[int, Callable[..., torch.Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _padded(layer: Any, H: torch.Tensor) -> torch.Tensor:
    """Inputs with the padding that the layer gives them."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    # The last axis first, two numbers an axis: PyTorch's own order, for "same" too.
    return F.pad(H, layer._reversed_padding_repeated_twice, mode=mode)


def _conv_noise(layer: Conv, H: torch.Tensor, eps: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """One convolution in which every copy's kernels are groups of their own."""
    K = len(next(iter(eps.values())))
    weight, bias = eps.get("weight"), eps.get("bias")
    if weight is None:
        weight = H.new_zeros(K, *layer.weight.shape)
    kernels = weight.flatten(0, 1)
    if len(H) == 1 and layer.groups == 1:
        # All copies have their inputs in common: no groups, only more kernels.
        inputs, groups, own = H[0], 1, layer.weight
        if own.ndim == 4 and own[0, 0].numel() > 1 and own.stride(1) == 1:  # channels last
            kernels = kernels.to(memory_format=torch.channels_last)
    else:
        # (K B, c, ...) to (B, K c, ...): the channels of all copies of an input side by side.
        inputs = H.expand(K, *H.shape[1:]).transpose(0, 1).flatten(1, 2).contiguous()
        groups = K * layer.groups
    padding: Any = layer.padding
    if layer.padding_mode != "zeros" or isinstance(padding, str):
        inputs, padding = _padded(layer, inputs), 0
    bias = None if bias is None else bias.flatten()
    convolve = _CONVOLUTIONS[len(layer.kernel_size)]
    out = convolve(inputs, kernels, bias, layer.stride, padding, layer.dilation, groups)
    return out.unflatten(1, (K, layer.out_channels)).transpose(0, 1)


def _conv_patches(layer: Conv, H: torch.Tensor) -> torch.Tensor:
    """What the kernels are multiplied by, (N, positions, groups, channels a group x kernel)."""
    windows = _padded(layer, H)
    n = len(layer.kernel_size)
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for axis, (size, stride, dilation) in enumerate(sizes):
        windows = windows.unfold(2 + axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    # (N, channels, positions ..., kernel ...)
    windows = windows.flatten(2 + n).flatten(2, 1 + n)
    windows = windows.unflatten(1, (layer.groups, -1))
    # (N, groups, channels a group, P, kernel)
    return windows.permute(0, 3, 1, 2, 4).flatten(3)


# What takes whole numbers.
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


_CONV = LayerType(_unit_stds, _conv_noise, _conv_patches, channels=1)
# Scale and shift of a normalisation are learned but not perturbed.
_NORM = LayerType(lambda layer, scale: {})
_NORMS = (_BatchNorm, nn.SyncBatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

LAYER_TYPES: dict[type[nn.Module], LayerType] = {
    nn.Linear: LayerType(_unit_stds, _linear_noise, _linear_patches),
    # A bound on norms is put on the weights themselves, in passing; and how often an index comes is
    # counted in all copies.
    nn.Embedding: LayerType(
        _embedding_stds,
        _embedding_noise,
        serves=lambda layer: layer.max_norm is None and not layer.scale_grad_by_freq,
    ),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _CONV),
    **dict.fromkeys(_NORMS, _NORM),
}


def layer_type_of(layer: nn.Module) -> LayerType | None:
    """How a layer is perturbed; None where its type is not known, or it is changed from it."""
    known = _type_by_class(layer)
    # A reparametrised layer has other parameters than its type.
    return known if known and known.stds(layer, 1.0).keys() <= _own_names(layer) else None


def perturbed_type_of(layer: nn.Module) -> LayerType | None:
    """How a layer is perturbed that has parameters to perturb; None for any other."""
    known = layer_type_of(layer)
    return known if known and known.stds(layer, 1.0) else None


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
        own, theirs = ((c.forward, getattr(c, "_conv_forward", 0)) for c in (type(layer), kind))
        same = own == theirs and "forward" not in vars(layer)
        return known if same and (known.serves is None or known.serves(layer)) else None
    return None


def _own_law(layer: nn.Module, name: str, parameter: torch.Tensor, scale: float) -> Std:
    """The law of a parameter of a layer of a type that is not known."""
    if name == "weight" and isinstance(layer, EMBEDDINGS):
        return _embedding_stds(layer, scale)["weight"]
    if name == "weight" and isinstance(layer, _ConvTransposeNd):  # whose inputs come first
        return scale / math.sqrt(parameter.numel() / layer.out_channels)
    return paper_std(parameter, scale)


def parameter_stds(module: nn.Module, scale: float) -> dict[str, Std]:
    """Standard deviation of each parameter's perturbation, by name; those that move alone."""
    laws: dict[int, Std | None] = {}
    for layer in module.modules():
        known = layer_type_of(layer)
        own = None if known is None else known.stds(layer, scale)
        for name, parameter in layer.named_parameters(recurse=False):
            law = _own_law(layer, name, parameter, scale) if own is None else own.get(name)
            laws.setdefault(id(parameter), law)
    learned = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return {name: law for name, p in learned if (law := laws[id(p)]) is not None}
