"""Passes of a module at theta0: hidden activations, Jacobians, statistics of normalizations."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.backends import mha
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from .._base.chunks import chunked
from .._base.environment import in_single_precision
from . import EMBEDDINGS, Tap, uses_batch_statistics
from .gram import factor_and_shift, gram_layers

# Rows that a thread passes through a chain at a time; each passes backward once for each class.
ROWS_OF_JACOBIANS = 16
# Added to squared norms under a root, whose slope at 0 is infinite.
_TINY = 1e-12

# Mean and variance of a batch norm's inputs, of each channel.
Statistics = tuple[torch.Tensor, torch.Tensor]
StatisticsOfCalls = Mapping[nn.Module, Sequence[Statistics]]
_Pullback = Callable[[torch.Tensor], torch.Tensor]


# Modes and settings of passes


def pretraining_mode_(module: nn.Module) -> None:
    """Switch dropout and sparse gradients off; let normalizations use the mini-batch.

    In a module in training mode, a normalization in evaluation mode stays so: its user froze it.
    """
    dense_gradients_(module)
    norms = [
        part
        for part in module.modules()
        if isinstance(part, _NormBase | _SpectralNorm) and (part.training or not module.training)
    ]
    module.eval()
    for part in norms:
        part.train()


def dense_gradients_(module: nn.Module) -> None:
    """Let no embedding have sparse gradients, which few optimisers take."""
    for part in module.modules():
        if isinstance(part, EMBEDDINGS):
            part.sparse = False


@contextmanager
def explained_single_row() -> Iterator[None]:
    """If batch normalization fails on a mini-batch of one row, raise an error that says why."""
    try:
        yield
    except ValueError as error:
        if "Expected more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            "batch normalization needs the mean and variance of a mini-batch, and this one has a "
            "single row: pass more rows, or a batch_size of at least 2; to predict single rows, "
            f"make the layer with track_running_stats=True ({error})"
        ) from error


@contextmanager
def isolated(module: nn.Module) -> Iterator[None]:
    """Let no pass in this block change running statistics or spectral norms."""
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.training]
    spectral = [part for part in module.modules() if isinstance(part, _SpectralNorm)]
    before = [(norm.track_running_stats, dict(norm._buffers)) for norm in norms]
    modes = [part.training for part in spectral]
    try:
        for norm in norms:
            norm.track_running_stats = False
            # Without this, instance normalization would still update running statistics.
            norm._buffers.update(running_mean=None, running_var=None)
        for part in spectral:
            part.eval()
        yield
    finally:
        for norm, (tracked, buffers) in zip(norms, before, strict=True):
            norm.track_running_stats = tracked
            norm._buffers.update(buffers)
        for part, training in zip(spectral, modes, strict=True):
            part.train(training)


_attention_lock, _attention = threading.Lock(), ExitStack()
_n_plain_attention = 0


@contextmanager
def plain_attention() -> Iterator[None]:
    """Let attention use plain operations: fused ones have no second derivative and no vmap.

    PyTorch's settings hold for all threads: the first thread in this block sets them, and the last
    one that leaves it restores them.
    """
    global _n_plain_attention
    with _attention_lock:
        if _n_plain_attention == 0:
            _attention.enter_context(sdpa_kernel(SDPBackend.MATH))
            # In evaluation mode nn.MultiheadAttention has a fused form without any derivative.
            _attention.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
        _n_plain_attention += 1
    try:
        yield
    finally:
        with _attention_lock:
            # In a process that was forked within this block it is 0 already.
            _n_plain_attention = max(_n_plain_attention - 1, 0)
            if _n_plain_attention == 0:
                _attention.close()


def _forget_threads() -> None:
    """Drop the lock and restore settings in a forked process, which has no thread in the block."""
    global _attention_lock, _n_plain_attention
    _attention_lock, _n_plain_attention = threading.Lock(), 0
    _attention.close()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget_threads)


@contextmanager
def hooked(
    layers: Sequence[nn.Module], hook: Callable[[nn.Module, Any, Any], Any]
) -> Iterator[None]:
    """Register a forward hook on layers in this block; it also gets inputs passed by name."""

    def call(layer: nn.Module, args: Any, keywords: Mapping[str, Any], output: Any) -> Any:
        return hook(layer, (*args, *keywords.values()), output)

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_hook(call, with_kwargs=True).remove)
        yield


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """Layers of a module that normalize by the rows of a mini-batch."""
    return [
        part
        for part in module.modules()
        if isinstance(part, _BatchNorm) and uses_batch_statistics(part)
    ]


# Activations, statistics and Jacobians


def hidden_activations(module: nn.Module, X: torch.Tensor, last_layer: str) -> torch.Tensor:
    """Inputs (B, n_units) of the last linear layer, by its name, on X (B, ...)."""
    inputs: list[torch.Tensor] = []
    last = module.get_submodule(last_layer)
    with hooked([last], lambda layer, args, output: inputs.append(args[0])):
        module(X.clone())  # a layer may work in place
    shape = tuple(inputs[-1].shape) if inputs else None
    if shape is None or shape[:-1] != X.shape[:1]:
        raise ValueError(
            f"hidden_layer={last_layer!r} must get one row for each of {len(X)} examples, and it "
            f"gets an input of shape {shape}; name another linear layer of the module"
        )
    return inputs[-1]


def _by_rows(
    function: Callable[[torch.Tensor], torch.Tensor], module: nn.Module, X: torch.Tensor, n: int
) -> torch.Tensor:
    """``function(X)``, on threads by n rows at a time if rows can be computed separately."""
    # Batch normalization needs all rows at once, and a GPU needs no threads.
    together = X.device.type != "cpu" or X.requires_grad or bool(batch_norms(module))
    if together or len(X) <= n:
        return function(X)
    parts = X.split(n)
    return chunked(lambda i: function(parts[i]), len(parts), list(module.parameters()))


@contextmanager
def noted_statistics(module: nn.Module) -> Iterator[StatisticsOfCalls]:
    """In this block, record the mean and variance of the inputs of each call of a batch norm."""
    statistics: dict[nn.Module, list[Statistics]] = {norm: [] for norm in batch_norms(module)}

    def note(norm: nn.Module, args: Any, output: Any) -> None:
        axes = [axis for axis in range(args[0].ndim) if axis != 1]
        variance, mean = torch.var_mean(in_single_precision(args[0]), dim=axes, correction=0)
        statistics[norm].append((mean, variance))

    with hooked(list(statistics), note):
        yield statistics


def update_running_statistics(module: nn.Module, X: torch.Tensor) -> StatisticsOfCalls:
    """Update running statistics from X by one pass, if the module has such state, and note them."""
    has_state = any(
        isinstance(part, _NormBase | _SpectralNorm) and part.training for part in module.modules()
    )
    with noted_statistics(module) as statistics:
        if statistics or has_state:
            module(X.clone())
    return statistics


def jacobian_norms(
    module: nn.Module,
    X: torch.Tensor,
    n_classes: int,
    taps: Sequence[Tap],
    statistics: StatisticsOfCalls,
) -> torch.Tensor:
    """Norms (B, d, L) of the rows of the Jacobians of the logits at theta0.

    The Jacobians are with respect to the input and to each pre-activation: the outputs of the calls
    in `taps`, which is ``ModuleInfo.taps``. Batch normalization uses the mean and variance in
    `statistics`. They come from X, or from more rows than X. The Jacobians treat them as constants.
    But gradients of the norms flow through them.
    """
    layers = gram_layers(module)
    axes = {(module.get_submodule(tap.layer), tap.call): tap.axis for tap in taps}
    with plain_attention(), isolated(module):
        if layers:
            tapped = {layer for layer, _ in axes}  # a chain calls each of these once
            norms = partial(_norms_of_chain, layers, tapped=tapped, statistics=statistics)
            return _by_rows(norms, module, X, ROWS_OF_JACOBIANS)
        row_norms = _norms_of_rows(module, X, n_classes, axes, statistics)
    # If a network has several heads, the layers of one head do not affect the classes of another.
    # The norms of these pairs of layer and class become 1, so that they add nothing to the loss. A
    # class that no layer affects keeps its norms, which are almost 0, so that L_iod punishes it.
    affects = (row_norms.detach() > 1.001 * math.sqrt(_TINY)).any(dim=0)  # (d, L)
    of_other_heads = ~affects & affects.any(dim=0) & affects.any(dim=1, keepdim=True)
    return torch.where(of_other_heads, torch.ones_like(row_norms), row_norms)


def _norms_of_chain(
    layers: Sequence[Any],
    X: torch.Tensor,
    tapped: Set[nn.Module],
    statistics: StatisticsOfCalls,
) -> torch.Tensor:
    """Norms (B, d, L) for some of the rows, by the chain rule from the last layer to the first.

    `layers` are those of ``gram_layers``. Each row passes forward once, not once for each class.
    """
    H = X
    steps: list[tuple[_Pullback, bool]] = []  # of each layer; the bool: whether it is tapped
    for layer in layers[:-1]:
        H, pullback = _output_and_pullback(layer, H, statistics)
        steps.append((pullback, layer in tapped))
    slopes = layers[-1].weight[:, None].expand(-1, len(X), -1)
    squares = []
    for pullback, is_tapped in reversed(steps):
        if is_tapped:
            squares.append(in_single_precision(slopes).square().sum(-1))
        slopes = pullback(slopes)
    squares.append(in_single_precision(slopes).flatten(2).square().sum(-1))
    return torch.stack(squares[::-1], dim=-1).add(_TINY).sqrt().transpose(0, 1)


def _output_and_pullback(
    layer: Any, H: torch.Tensor, statistics: StatisticsOfCalls
) -> tuple[torch.Tensor, _Pullback]:
    """A layer's output on H, and the map of gradients (d, B, ...) from its output to H."""
    if type(layer) is nn.Linear:
        return layer(H), partial(torch.matmul, other=layer.weight)
    if isinstance(layer, _BatchNorm):
        running: Any = [(layer.running_mean, layer.running_var)]
        factor, shift = factor_and_shift(layer, *statistics.get(layer, running)[0])
        return H * factor + shift, partial(torch.mul, other=factor)
    if type(layer) is nn.Flatten:
        return H.flatten(1), lambda slopes: slopes.reshape(len(slopes), *H.shape)
    if type(layer) is nn.ReLU:  # autograd would compute its second derivative, all zeros
        off = H <= 0
        return H.masked_fill(off, 0.0), partial(torch.masked_fill, mask=off, value=0.0)
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = H if differentiable and H.requires_grad else H.detach().requires_grad_()
        copy = inputs.clone()  # the layer may work in place
        output = layer(copy)
        if output is copy and not copy._version:  # the layer changes nothing
            return H, lambda slopes: slopes
        (factor,) = torch.autograd.grad(output.sum(), inputs, create_graph=differentiable)
    return output if differentiable else output.detach(), partial(torch.mul, other=factor)


def _norms_of_rows(
    module: nn.Module,
    X: torch.Tensor,
    n_classes: int,
    axes: Mapping[tuple[nn.Module, int], int],
    statistics: StatisticsOfCalls,
) -> torch.Tensor:
    """Norms (B, d, L) for a module that is not a chain, by autograd through its own pass."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        # Rows are repeated for each class, so that one backward pass gives all gradients.
        rows = X.repeat(n_classes, *[1] * (X.ndim - 1))
        if rows.is_floating_point() and not rows.requires_grad:
            rows.requires_grad_()
        logits, tapped = _logits_and_tapped(module, rows, axes, statistics)
        of_class = torch.eye(n_classes, dtype=logits.dtype, device=logits.device)
        of_class = of_class.repeat_interleave(len(X), dim=0)
        # A layer that gets only some of the rows, as in a mixture of experts, is skipped: its
        # output cannot be assigned to rows.
        inputs = [(rows, 0)] if rows.requires_grad else []
        inputs += [(H, axis) for H, axis in tapped if H.shape[axis] % len(rows) == 0]
        squares = []
        if inputs and logits.requires_grad:
            slopes = torch.autograd.grad(
                logits,
                [tensor for tensor, _ in inputs],
                of_class,
                create_graph=differentiable,
                allow_unused=True,
            )
            squares = [
                in_single_precision(slope)
                .movedim(axis, 0)
                .reshape(n_classes, len(X), -1)
                .square()
                .sum(-1)
                for slope, (_, axis) in zip(slopes, inputs, strict=True)
                if slope is not None
            ]
    if not squares:
        raise ValueError(
            f"the logits of {type(module).__name__} depend neither on an input of floats nor on a "
            "known layer before the last one, so there is no Jacobian for the detachment term; set "
            "detachment_weight=0"
        )
    return torch.stack(squares, dim=-1).add(_TINY).sqrt().transpose(0, 1)


def _logits_and_tapped(
    module: nn.Module,
    rows: torch.Tensor,
    axes: Mapping[tuple[nn.Module, int], int],
    statistics: StatisticsOfCalls,
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, int]]]:
    """Logits of a pass; outputs of the calls in `axes`, each with its axis of examples."""
    tapped: list[tuple[torch.Tensor, int]] = []
    n_calls: Counter[nn.Module] = Counter()
    remaining = {norm: iter(calls) for norm, calls in statistics.items()}

    def tap(layer: nn.Module, args: Any, output: Any) -> Any:
        axis = axes.get((layer, n_calls[layer]))
        n_calls[layer] += 1
        if layer in remaining:
            channels = (1, -1, *[1] * (args[0].ndim - 2))
            factor, shift = factor_and_shift(layer, *next(remaining[layer]))
            normalized = args[0] * factor.view(channels) + shift.view(channels)
            output = normalized.to(output.dtype)
        if axis is None:
            return output
        if not output.requires_grad:  # the output of frozen layers
            output = output.detach().requires_grad_()
        tapped.append((output, axis))
        return output.clone()  # an operation in place must not change the tapped one

    with hooked(list({*remaining, *(layer for layer, _ in axes)}), tap):
        logits = module(rows.clone())
    return logits, tapped
