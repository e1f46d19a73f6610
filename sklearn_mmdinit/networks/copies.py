"""Perturbed copies of a module as one pass of it: each layer adds its own noise to its output."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .._base.random_streams import StepRandom
from .._base.threads import Buffers
from .gram import GramAround, GramLinear, gram_is_cheaper, gram_noise
from .hooks import (
    batch_norms,
    names_of,
    normalised,
    own_output,
    replaced,
    statistics_of,
    step_by_step,
    untracked,
)
from .layers import LayerType, Std, layer_type_of, parameter_stds
from .trace import Call, Trace, sees


@dataclass(frozen=True)
class PerturbedLayer:
    """A layer that adds noise, and how it is drawn for mini-batches of one size."""

    name: str
    kind: LayerType
    stds: Mapping[str, Std]  # of its parameters that move
    by_gram: bool  # and not by direct


def perturbed_layers(
    module: nn.Module, found: Trace, scale: float, sampler: str, n_rows: int
) -> dict[nn.Module, PerturbedLayer]:
    """The known layers of a module that have parameters to perturb."""
    laws = parameter_stds(module, scale)
    # A parameter with several names has the law of the first one under each of them.
    of_parameter = {id(p): laws[name] for name, p in module.named_parameters() if name in laws}
    calls = {call.layer: call for call in found.calls if call.layer not in found.reused}
    layers = {}
    for layer, name in names_of(module).items():
        kind = layer_type_of(layer)
        stds = {
            own: of_parameter[id(parameter)]
            for own, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
            if id(parameter) in of_parameter
        }
        if kind is not None and stds:
            # What acts in several places is drawn once for all of them.
            by_gram = name in calls and _draws_by_gram(layer, kind, sampler, n_rows, calls[name])
            layers[layer] = PerturbedLayer(name, kind, stds, by_gram)
    return layers


def _draws_by_gram(layer: Any, kind: LayerType, sampler: str, n_rows: int, call: Call) -> bool:
    if kind.patches is None or sampler != "auto":
        return kind.patches is not None and sampler == "gram"
    n_in, n_out = layer.weight[0].numel(), len(layer.weight) // getattr(layer, "groups", 1)
    return gram_is_cheaper(n_rows * call.n_positions, n_in, n_out, first=call.first)


@dataclass
class Draw:
    """What one pass of some copies draws with."""

    rows: torch.Tensor  # the mini-batch, once for each copy
    n_copies: int  # K
    random: StepRandom  # source of the draws
    part: int = 0  # which part of all copies this is: parts have no memory in common
    mask: torch.Tensor | None = None  # factors of the copies' perturbations
    # Of linear layers that see the examples themselves and are drawn by gram, by name: what all
    # copies of all parts have in common, outputs at theta0 and the factor of the noise.
    common: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    eps: dict[int, torch.Tensor] = field(default_factory=dict)
    by_gram: set[str] = field(default_factory=set)

    def of(self, parameter: nn.Parameter, std: Std) -> torch.Tensor:
        """The perturbation of a parameter, the same wherever it acts in this pass."""
        key = id(parameter)
        if key not in self.eps:
            self.eps[key] = self.random.normal(self.n_copies, *parameter.shape).mul_(std)
        return self.eps[key]

    def of_layer(self, layer: nn.Module, perturbed: PerturbedLayer) -> dict[str, torch.Tensor]:
        """The perturbations of a layer's parameters that move, by name."""
        parameters = dict(layer.named_parameters(recurse=False, remove_duplicate=False))
        return {name: self.of(parameters[name], std) for name, std in perturbed.stds.items()}


@contextmanager
def copies_drawn(
    module: nn.Module, layers: Mapping[nn.Module, PerturbedLayer], buffers: Buffers
) -> Iterator[Any]:
    """Let a module compute perturbed copies for a while, in any number of threads.

    Gives a function that takes a :class:`Draw` and returns logits (K B, d).
    """
    here = threading.local()  # the draw of a thread's own pass

    def noisy(layer: nn.Module, H: torch.Tensor) -> torch.Tensor:
        return _noisy(layer, layers[layer], H, here.draw, buffers)

    def by_copies(norm: _BatchNorm, H: torch.Tensor) -> torch.Tensor:
        # Each copy normalises by its own rows, as a network in training does.
        _check_rows(type(norm).__name__, H, here.draw)
        H = H.contiguous()
        return normalised(norm, H, statistics_of(H, here.draw.n_copies))

    def logits(draw: Draw) -> torch.Tensor:
        here.draw = draw
        try:
            computed: torch.Tensor = module(draw.rows)
        finally:
            del here.draw
        return computed

    forwards: dict[nn.Module, Any] = dict.fromkeys(batch_norms(module), by_copies)
    forwards |= dict.fromkeys(layers, noisy)
    with step_by_step(), untracked(module), replaced(forwards):
        yield logits


def _check_rows(name: str, H: torch.Tensor, draw: Draw) -> None:
    """Raise unless inputs (K B, ...) of a layer are one row or more for each example."""
    if len(H) % len(draw.rows):
        seen = f"the layer {name!r} sees {len(H)} rows of {len(draw.rows)} examples"
        why = "another axis than the first counts them, or they come in pieces"
        raise RuntimeError(f"{seen}: {why}, and copies of a module need all of them at once")


def _noisy(
    layer: Any,
    perturbed: PerturbedLayer,
    H: torch.Tensor,
    draw: Draw,
    buffers: Buffers,
) -> torch.Tensor:
    """Outputs (K B, ...) of a layer's copies on inputs (K B, ...)."""
    K, kind = draw.n_copies, perturbed.kind
    _check_rows(perturbed.name, H, draw)
    if perturbed.by_gram:
        if perturbed.name in draw.by_gram:
            more = "is called more often than in the first pass"
            raise RuntimeError(f"the layer {perturbed.name!r} {more}")
        draw.by_gram.add(perturbed.name)
    first = sees(H, draw.rows)

    def empty(
        role: str, shape: tuple[int, ...], like: torch.Tensor, *, passing: bool = False
    ) -> torch.Tensor:
        # A thread reads what is passing before it goes on to another part; and it need not be the
        # one that computed the outputs, so that it asks when it is there.
        owner = ("thread", threading.get_ident()) if passing else ("part", draw.part)
        return buffers.take((perturbed.name, role, owner), shape, like)

    fused: torch.Tensor | None = None
    if first and perturbed.name in draw.common:
        fused = GramAround.apply(*draw.common[perturbed.name], K, draw.random, empty)
    elif not first and _is_fused(layer, H, draw):
        rows = H.reshape(K, -1, H.shape[-1])
        if perturbed.by_gram:
            stds = gram_stds(perturbed)
            fused = GramLinear.apply(rows, layer.weight, layer.bias, stds, draw.random, empty)
        else:
            weights, biases = _own_parameters(layer, perturbed, draw)
            fused = torch.baddbmm(biases.unsqueeze(1), rows, weights.mT).flatten(0, 1)
    if fused is not None:
        # No view where there need be none: an activation in place would copy it.
        return fused if H.ndim == 2 else fused.view(*H.shape[:-1], -1)
    # Where all copies have their inputs in common, the layer itself runs once for all.
    own_rows = H[: len(H) // K] if first else H
    n = 1 if first else K
    own_rows = _Read.apply(own_rows)
    output = own_output(layer, own_rows)
    if len(output) != len(own_rows):
        found = f"returns {len(output)} rows of {len(own_rows)}"
        raise RuntimeError(f"the layer {perturbed.name!r} {found}")
    inputs, own = own_rows.unflatten(0, (n, -1)), output.unflatten(0, (n, -1))
    if perturbed.by_gram:
        noise = _by_gram(layer, perturbed, inputs, (K * own.shape[1], *output.shape[1:]), draw)
        noise = noise.reshape(K, *own.shape[1:])
    else:
        assert kind.noise is not None
        noise = kind.noise(layer, inputs, draw.of_layer(layer, perturbed))
        noise = noise.reshape(K, *own.shape[1:])
    if draw.mask is not None:
        noise = noise * draw.mask.view(K, *[1] * output.ndim)
    added: torch.Tensor = _Added.apply(own, noise)
    return added.flatten(0, 1)


def _is_fused(layer: Any, H: torch.Tensor, draw: Draw) -> bool:
    """Whether outputs and noise of a layer by gram on inputs (K B, ...) come of one product."""
    if type(layer).forward is not nn.Linear.forward or draw.mask is not None:
        return False
    single = H.dtype == layer.weight.dtype == torch.float32
    return single and not torch.is_autocast_enabled(H.device.type)


def gram_stds(perturbed: PerturbedLayer) -> tuple[float, float]:
    """Standard deviations of weight and bias of a layer that is drawn by gram."""
    weight, bias = (perturbed.stds.get(name, 0.0) for name in ("weight", "bias"))
    assert not isinstance(weight, torch.Tensor)
    assert not isinstance(bias, torch.Tensor)
    return weight, bias


def _own_parameters(
    layer: nn.Linear, perturbed: PerturbedLayer, draw: Draw
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (K, n_out, n_in) and biases (K, n_out) of the copies of a linear layer."""
    eps = draw.of_layer(layer, perturbed)
    bias = layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias
    weights, biases = (
        own + eps[name] if name in eps else own.expand(draw.n_copies, *own.shape)
        for name, own in (("weight", layer.weight), ("bias", bias))
    )
    return weights, biases


def _by_gram(
    layer: Any, perturbed: PerturbedLayer, H: torch.Tensor, shape: tuple[int, ...], draw: Draw
) -> torch.Tensor:
    """Noise by gram of a layer on inputs (K, B, ...) or (1, B, ...), in the shape of its output."""
    kind = perturbed.kind
    assert kind.patches is not None
    if H.dtype in (torch.float16, torch.bfloat16):
        H = H.float()  # factors in less break down
    positions = list(shape)
    n_out = positions.pop(kind.channels)
    with torch.autocast(H.device.type, enabled=False):  # which a module may be inside of
        patches = kind.patches(layer, H.flatten(0, 1)).unflatten(0, H.shape[:2])
        noise = gram_noise(patches, draw.n_copies, n_out, gram_stds(perturbed), draw.random)
    # (K B, P, n_out) to the shape of the output, whose units may come before the positions.
    return noise.view(*positions, n_out).movedim(-1, kind.channels)


class _Read(torch.autograd.Function):
    """Inputs as they are; their gradient comes back in their own order in memory."""

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
    """Outputs (n, B, ...) of n = K copies or of one, and noise (K, B, ...), as (K, B, ...)."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        ctx.common = len(own) < len(noise)
        # In the outputs' own order in memory, by which the next layer goes through them.
        like = torch.empty_like(own[0], device="meta")
        strides = like.numel(), *like.stride()
        added = own.new_empty_strided((len(noise), *like.shape), strides)
        return torch.add(own, noise, out=added)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (slopes,) = grad_outputs
        return slopes.sum(0, keepdim=True) if ctx.common else slopes, slopes
