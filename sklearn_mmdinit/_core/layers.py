"""The law of a perturbation, and the layer types whose perturbed copies run in one pass."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm

from .estimators import check_kind, told

# Of a parameter's perturbation: a number, or one for each entry, of a shape that broadcasts.
Std = float | torch.Tensor
Stds = Callable[[Any, float], Mapping[str, Std]]
Noise = Callable[[Any, torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]


class _Alone(nn.Module):
    """A layer by its class's own ``forward``, whatever stands in its place for a while."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, H: torch.Tensor) -> Any:
        return type(self.layer).forward(self.layer, H)


def _noise_by_vmap(
    layer: nn.Module, H: torch.Tensor, eps: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """What perturbations add to the outputs: those of the layer with them as its parameters."""
    parameters = layer.named_parameters(recurse=False)
    # A parameter that is not perturbed has no share in it.
    still = {name: torch.zeros_like(p) for name, p in parameters if name not in eps}
    alone = _Alone(layer)

    def one(eps: dict[str, torch.Tensor], H: torch.Tensor) -> Any:
        own = {f"layer.{name}": value for name, value in {**still, **eps}.items()}
        return functional_call(alone, own, (H,))

    if len(H) == 1:
        return vmap(one, in_dims=(0, None))(dict(eps), H[0])
    return vmap(one)(dict(eps), H)


@dataclass(frozen=True)
class LayerType:
    """How layers of a type are perturbed."""

    # Takes a layer and the paper's s; returns the standard deviation of each parameter's
    # perturbation by name. A parameter that is not named stays; a type of which all stay is a
    # normalisation.
    stds: Stds
    # Takes a layer, inputs (K, B, ...) or (1, B, ...) and perturbations (K, ...) by name; returns
    # what they add to the outputs, (K, B, ...).
    noise: Noise = _noise_by_vmap
    # Takes a layer and inputs (N, ...); returns the rows (N, P, groups, n_in) whose products with
    # the weights are the outputs at P positions. None: there is no form by gram.
    patches: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    channels: int = -1  # axis of the outputs that counts units
    # Whether a layer with the options that it has is linear in its parameters; None: always.
    serves: Callable[[Any], bool] | None = None
    by_user: bool = False  # whether a user has made it known, whose rule may be wrong


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


def check_rules(module: nn.Module) -> None:
    """Raise unless what rules of :func:`register_layer` say of a module's layers makes sense."""
    for place, layer in module.named_modules():
        known = _type_by_class(layer)
        if known is None or not known.by_user:
            continue
        rule = f"stds of register_layer for {type(layer).__name__}, the layer {place!r},"
        with told(rule[:-1]):
            stds = known.stds(layer, 1.0)
        check_kind(f"what {rule[:-1]} returns", stds, Mapping)
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
        if stds and not any(torch.as_tensor(std).any() for std in stds.values()):
            raise ValueError(f"{rule} must perturb a parameter, or return {{}}, got {stds!r}")


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


def register_layer(layer_class: type[nn.Module], stds: Stds) -> None:
    r"""Make a type of layer known, so that its perturbed copies run in one pass.

    For layers that take one tensor whose first axis counts rows, are linear in their parameters
    and treat each row on its own. Others need none where ``sampler="functional"``, a slower one,
    serves them. What is registered holds in this process: workers, and who unpickles an
    initializer, register it too.

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
        Parameters without an entry stay; an empty dict makes the type a normalisation.

    Raises
    ------
    TypeError
        If `layer_class` is no subclass of Module, or `stds` cannot be called.

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
    check_kind("stds", stds, Callable)
    LAYER_TYPES[layer_class] = LayerType(stds, by_user=True)
