"""Passes of a module that differ from its own, and leave no trace in it whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from .._base.environment import kept_generators
from .layers import EMBEDDINGS, layer_type_of, paper_std

# Takes a layer and its input, returns an output in place of the layer's own.
Forward = Callable[[Any, Any], Any]


def names_of(module: nn.Module) -> dict[nn.Module, str]:
    """Name of each module in a module; of one with several, the first."""
    return {layer: name for name, layer in module.named_modules()}


def own_output(layer: nn.Module, H: Any) -> Any:
    """What a layer returns by its class, whatever stands in its place."""
    return type(layer).forward(layer, H)


@contextmanager
def replaced(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Let other functions compute layers for a while; called with layer and input."""

    def forward(layer: nn.Module, function: Forward, *args: Any, **kwargs: Any) -> Any:
        H, *others = (*args, *kwargs.values())
        if any(other is not None for other in others):
            gets = f"{type(layer).__name__} gets {1 + len(others)}"
            raise ValueError(f"a layer that is known takes one input, {gets}")
        return function(layer, H)

    with ExitStack() as stack:
        for layer, function in forwards.items():
            vars(layer)["forward"] = partial(forward, layer, function)
            stack.callback(vars(layer).pop, "forward")
        yield


def _tracking_norms(module: nn.Module) -> list[_NormBase]:
    """Layers that may keep statistics of the rows they see."""
    return [layer for layer in module.modules() if isinstance(layer, _NormBase)]


@contextmanager
def tracked(module: nn.Module) -> Iterator[bool]:
    """Let what follows the rows, or the weights, do so for a while; whether there is any."""
    norms = _tracking_norms(module)
    found = any(norm.training and norm.running_mean is not None for norm in norms)
    spectral = [part for part in module.modules() if isinstance(part, _SpectralNorm)]
    try:
        for part in spectral:
            part.train()
        yield found or bool(spectral)
    finally:
        for part in spectral:
            part.eval()


def with_dense_gradients_(module: nn.Module) -> None:
    """Let no table of a module have a sparse gradient, which few optimisers know."""
    for part in module.modules():
        if isinstance(part, EMBEDDINGS):
            part.sparse = False


def pretraining_mode(module: nn.Module) -> None:
    """Dropout off, normalisation by the statistics of the mini-batch, and no sparse gradients."""
    with_dense_gradients_(module)
    # One that is in evaluation while the module is in training was frozen on purpose.
    norms = [norm for norm in _tracking_norms(module) if norm.training or not module.training]
    module.eval()
    for norm in norms:
        norm.train()


@contextmanager
def untracked(module: nn.Module) -> Iterator[None]:
    """Normalise by the rows of a pass for a while, with no trace in the running statistics."""
    norms = [norm for norm in _tracking_norms(module) if norm.training]
    before = [(norm.track_running_stats, dict(norm._buffers)) for norm in norms]
    try:
        for norm in norms:
            norm.track_running_stats = False
            # Instance normalisation updates whatever statistics there are.
            norm._buffers.update(running_mean=None, running_var=None)
        yield
    finally:
        for norm, (tracked, buffers) in zip(norms, before, strict=True):
            norm.track_running_stats = tracked
            norm._buffers.update(buffers)


@contextmanager
def moved(module: nn.Module) -> Iterator[None]:
    """Learned parameters elsewhere for a while: of a head of zeros, say, little would show."""
    learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
    before = [parameter.detach().clone() for parameter in learned]
    source = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for p in learned:
                noise = torch.randn(p.shape, dtype=p.dtype, generator=source)
                p.add_(noise, alpha=paper_std(p, 1.0))
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(learned, before, strict=True):
                parameter.copy_(value)


@contextmanager
def layer_named(module: nn.Module) -> Iterator[Callable[[], str]]:
    """A function that says which layer was called last and has not returned."""
    names = names_of(module)
    open_calls: list[nn.Module] = []

    def enter(layer: nn.Module, args: Any) -> None:
        open_calls.append(layer)

    def leave(layer: nn.Module, args: Any, output: Any) -> None:
        open_calls.pop()

    def called() -> str:
        if not open_calls:
            return "the module"
        layer = open_calls[-1]
        kind = type(layer).__name__
        return f"the layer {names[layer]!r} ({kind})" if names[layer] else f"{kind}.forward"

    with ExitStack() as stack:
        for layer in names:
            stack.callback(layer.register_forward_pre_hook(enter).remove)
            stack.callback(layer.register_forward_hook(leave).remove)
        yield called


class _Switch:
    """A setting that all threads share: the first one in switches it, the last one out back."""

    def __init__(self, switched: Callable[[], AbstractContextManager[Any]]) -> None:
        self._switched = switched
        self._lock, self._inside = threading.Lock(), 0
        self._stack = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._stack.enter_context(self._switched())
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._stack.close()


@contextmanager
def _without_fast_path() -> Iterator[None]:
    mha = torch.backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


# Attention without PyTorch's shorter way through a layer, which calls none of its parts.
step_by_step = _Switch(_without_fast_path)
_by_plain_operations = _Switch(lambda: sdpa_kernel(SDPBackend.MATH))


@contextmanager
def unfused() -> Iterator[None]:
    """Attention by plain operations for a while: others cannot be differentiated twice."""
    with step_by_step(), _by_plain_operations():
        yield


@contextmanager
def aside() -> Iterator[None]:
    """For a pass that is only to be looked at: what any layer draws in it leaves no trace."""
    with kept_generators(), step_by_step():
        yield


# Mean and variance of a call, (groups of rows, channels).
Statistics = tuple[torch.Tensor, torch.Tensor]


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Layers of a module that normalise by the rows of a pass; none that are frozen."""
    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    return [norm for norm in norms if norm.training and layer_type_of(norm) is not None]


def statistics_of(H: torch.Tensor, n_groups: int) -> Statistics:
    """Of each group of rows on its own; H has shape (groups * rows, channels, ...)."""
    grouped = H.view(n_groups, -1, *H.shape[1:])
    axes = (1, *range(3, grouped.ndim))
    variance, mean = torch.var_mean(grouped, dim=axes, correction=0)
    return mean, variance


def normalised(norm: _BatchNorm, H: torch.Tensor, statistics: Statistics) -> torch.Tensor:
    """Rows H (groups * rows, channels, ...), each group by its own statistics."""
    mean, variance = statistics
    factor, n_groups = (variance + norm.eps).rsqrt(), len(mean)
    shift = -mean * factor
    if norm.affine:
        factor = factor * norm.weight
        shift = shift * norm.weight + norm.bias
    grouped = H.view(n_groups, -1, *H.shape[1:])
    shape = (n_groups, 1, H.shape[1], *[1] * (H.ndim - 2))
    return (grouped * factor.view(shape) + shift.view(shape)).view(H.shape)
