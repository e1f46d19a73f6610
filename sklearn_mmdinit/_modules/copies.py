"""Perturbed copies of a module as one pass of it: each layer adds its own noise to its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .._compute import StepRandom
from .._sampling import gram_is_cheaper
from .gram import gram_noise
from .hooks import hooked, names_of, replaced_inputs, step_by_step, untracked
from .layer_type import LayerType, Std
from .network import ModuleNetwork
from .norms import batch_norms, by_copies
from .registry import layer_type_of, parameter_stds
from .trace import sees

__all__ = ["copied_logits", "draws_by_gram", "perturbed_layers"]


@dataclass(frozen=True)
class PerturbedLayer:
    """A layer that adds noise: its name and type, and the law of its parameters that move."""

    name: str
    kind: LayerType
    stds: Mapping[str, Std]


def perturbed_layers(module: nn.Module, scale: float) -> dict[nn.Module, PerturbedLayer]:
    """The known layers of a module that have parameters to perturb."""
    laws = parameter_stds(module, scale)
    # A parameter with several names has the law of the first one under each of them.
    of_parameter = {id(p): laws[name] for name, p in module.named_parameters() if name in laws}
    layers = {}
    for layer, name in names_of(module).items():
        kind = layer_type_of(layer)
        stds = {
            own: of_parameter[id(parameter)]
            for own, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
            if id(parameter) in of_parameter
        }
        if kind is not None and stds:
            layers[layer] = PerturbedLayer(name, kind, stds)
    return layers


def draws_by_gram(
    layer: Any, perturbed: PerturbedLayer, sampler: str, n_rows: int, *, reused: bool, first: bool
) -> bool:
    """Whether a layer is drawn by gram, and not by direct.

    Parameters
    ----------
    layer : nn.Module
        The layer.
    perturbed : PerturbedLayer
        Its type and law.
    sampler : {"auto", "direct", "gram"}
        What is asked for; "auto": the cheaper one.
    n_rows : int
        Rows of a copy that go through it: examples, times their tokens or pixels.
    reused : bool
        Whether its perturbation acts in several places: gram has none to use again.
    first : bool
        Whether all copies have its inputs in common.
    """
    if perturbed.kind.patches is None or reused or sampler == "direct":
        return False
    if sampler == "gram":
        return True
    n_out, n_in = len(layer.weight), layer.weight[0].numel()
    groups = getattr(layer, "groups", 1)
    return gram_is_cheaper(n_rows, n_in, n_out // groups, first=first)


def copied_logits(
    network: ModuleNetwork,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    sampler: str,
    random: StepRandom,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logits of perturbed copies on one mini-batch, from one pass with all their rows.

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
    sampler : {"auto", "direct", "gram"}
        Of the layers.
    random : StepRandom
        Source of the draws.
    mask : Tensor of shape (K,), default=None
        What the noise of each copy is multiplied by; None: 1.

    Returns
    -------
    Tensor of shape (K, B, n_classes)
    """
    module = network.module
    # A copy, even of one: a module may work in place on its input.
    rows = X.expand(n_copies, *X.shape).clone(memory_format=torch.contiguous_format).flatten(0, 1)
    layers = perturbed_layers(module, scale)
    noises = _Noises(rows, n_copies, layers, network.trace.reused, sampler, random, mask)
    hooks: list[Any] = [(norm, by_copies(n_copies)) for norm in batch_norms(module)]
    hooks += [(layer, noises) for layer in layers]
    narrowed = replaced_inputs(layers, noises.narrowed)
    with step_by_step(), untracked(module), narrowed, hooked(hooks):
        logits: torch.Tensor = module(rows)
    return logits.view(n_copies, len(X), -1)


class _Read(torch.autograd.Function):
    """Inputs as they are; their gradient comes back in their own order in memory.

    A convolution's noise has another one, and what is before it is slow in a mixed one.
    """

    @staticmethod
    def forward(ctx: Any, H: torch.Tensor) -> torch.Tensor:
        ctx.like = torch.empty_like(H, device="meta")
        return H.view_as(H)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
        (slopes,) = grad_outputs
        if slopes.stride() == ctx.like.stride():
            return slopes
        return torch.empty_like(ctx.like, device=slopes.device).copy_(slopes)


class _Added(torch.autograd.Function):
    """Outputs (n, B, ...) of n = K copies or of one, and noise (K, B, ...), as (K, B, ...).

    In the outputs' own order in memory, where a plain sum may have that of the noise.
    """

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        ctx.common = len(own) < len(noise)
        like = torch.empty_like(own[0], device="meta")
        strides = like.numel(), *like.stride()
        added = own.new_empty_strided((len(noise), *like.shape), strides)
        return torch.add(own, noise, out=added)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (slopes,) = grad_outputs
        return slopes.sum(0, keepdim=True) if ctx.common else slopes, slopes


@dataclass
class _Noises:
    """The hook of all layers in one pass: what perturbations add to an output."""

    rows: torch.Tensor
    n_copies: int
    layers: Mapping[nn.Module, PerturbedLayer]
    reused: frozenset[str]
    sampler: str
    random: StepRandom
    mask: torch.Tensor | None
    eps: dict[int, torch.Tensor] = field(default_factory=dict)
    by_gram: set[str] = field(default_factory=set)
    inside: bool = False
    common: torch.Tensor | None = None

    def narrowed(self, layer: nn.Module, H: Any) -> torch.Tensor | None:
        """One copy's inputs, where all copies have them in common: the layer runs once for all."""
        if self.inside or len(H) % self.n_copies or not sees(H, self.rows):
            return None
        self.common = H[: len(H) // self.n_copies]
        return self.common

    def __call__(
        self, layer: nn.Module, H: torch.Tensor, output: torch.Tensor
    ) -> torch.Tensor | None:
        if self.inside:  # a layer called for its noise alone
            return None
        K, perturbed = self.n_copies, self.layers[layer]
        first = H is self.common
        if not (first or len(H) % K == 0) or len(output) != len(H):
            raise RuntimeError(
                f"the layer {perturbed.name!r} does not see one row or more for each example"
            )
        # (1, B, ...) of all copies, or (K, B, ...).
        n = 1 if first else K
        H, own = _Read.apply(H).unflatten(0, (n, -1)), output.unflatten(0, (n, -1))
        shape = (K * own.shape[1], *output.shape[1:])
        n_rows = own[0].numel() // output.shape[perturbed.kind.channels]
        reused = perturbed.name in self.reused
        if draws_by_gram(layer, perturbed, self.sampler, n_rows, reused=reused, first=first):
            noise = self._gram(layer, perturbed, H, shape)
        else:
            noise = self._direct(layer, perturbed, H)
        noise = noise.reshape(K, *own.shape[1:])
        if self.mask is not None:
            noise = noise * self.mask.view(K, *[1] * output.ndim)
        added: torch.Tensor = _Added.apply(own, noise)
        return added.flatten(0, 1)

    def _direct(self, layer: nn.Module, perturbed: PerturbedLayer, H: torch.Tensor) -> torch.Tensor:
        parameters = dict(layer.named_parameters(recurse=False, remove_duplicate=False))
        eps = {name: self._of(parameters[name], std) for name, std in perturbed.stds.items()}
        self.inside = True
        try:
            return perturbed.kind.noise(layer, H, eps)
        finally:
            self.inside = False

    def _of(self, parameter: nn.Parameter, std: Std) -> torch.Tensor:
        """The perturbation of a parameter, the same wherever it acts in this pass."""
        key = id(parameter)
        if key not in self.eps:
            self.eps[key] = self.random.normal(self.n_copies, *parameter.shape).mul_(std)
        return self.eps[key]

    def _gram(
        self, layer: Any, perturbed: PerturbedLayer, H: torch.Tensor, shape: tuple[int, ...]
    ) -> torch.Tensor:
        if perturbed.name in self.by_gram:
            raise RuntimeError(
                f"the layer {perturbed.name!r} is called more often than in the first pass"
            )
        self.by_gram.add(perturbed.name)
        kind = perturbed.kind
        assert kind.patches is not None
        weight_std, bias_std = (perturbed.stds.get(name, 0.0) for name in ("weight", "bias"))
        assert not isinstance(weight_std, torch.Tensor)
        assert not isinstance(bias_std, torch.Tensor)
        if H.dtype in (torch.float16, torch.bfloat16):
            H = H.float()  # factors in less break down
        positions = list(shape)
        n_out = positions.pop(kind.channels)
        with torch.autocast(H.device.type, enabled=False):  # which a module may be inside of
            patches = kind.patches(layer, H.flatten(0, 1)).unflatten(0, H.shape[:2])
            noise = gram_noise(patches, self.n_copies, n_out, weight_std, bias_std, self.random)
        # (K B, P, n_out) to the shape of the output, whose units may come before the positions.
        return noise.view(*positions, n_out).movedim(-1, kind.channels)
