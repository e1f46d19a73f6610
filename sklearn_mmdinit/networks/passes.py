"""Passes of a module at theta0: hidden activations, Jacobians, statistics of normalizations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ContextDecorator, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.backends import mha
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.overrides import TorchFunctionMode

from .._base.environment import in_single_precision, with_gradients
from .._base.validation import add_error_context
from .gram import factor_and_shift, gram_layers
from .noise import EMBEDDINGS, NORMALIZATIONS, uses_batch_statistics

# Layers whose outputs are pre-activations, in the paper's sense.
TAPPED = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Added to squared norms under a root, whose slope at 0 is infinite.
_TINY = 1e-12

# Mean and variance of each channel of a batch norm's inputs, one pair a call, in order.
Statistics = Sequence[tuple[torch.Tensor, torch.Tensor]]


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


def explained_single_row() -> ContextDecorator:
    """If batch normalization fails on a mini-batch of one row, let the error say why."""
    return add_error_context(
        "batch normalization needs the mean and variance of a mini-batch, and this one has a "
        "single row: pass more rows, or a batch_size of at least 2; to predict single rows, make "
        "the layer with track_running_stats=True",
        "Expected more than 1 value per channel",
    )


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


_attention, _n_in_block, _lock = ExitStack(), 0, threading.Lock()


@contextmanager
def plain_attention() -> Iterator[None]:
    """Let attention use plain operations: fused ones have no second derivative and no vmap.

    PyTorch's settings hold for all threads: the first thread in this block sets them, and the last
    one that leaves it restores them.
    """
    global _n_in_block
    with _lock:
        if _n_in_block == 0:
            _attention.enter_context(sdpa_kernel(SDPBackend.MATH))
            # In evaluation mode nn.MultiheadAttention has a fused form without any derivative.
            _attention.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
        _n_in_block += 1
    try:
        yield
    finally:
        with _lock:
            _n_in_block -= 1
            if _n_in_block == 0:
                _attention.close()


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
    return inputs[-1]


def update_running_statistics(module: nn.Module, X: torch.Tensor) -> Statistics:
    """Update running statistics by a pass of X, if there are any; return the statistics of X."""
    statistics: list[tuple[torch.Tensor, torch.Tensor]] = []

    def note(norm: nn.Module, args: Any, output: Any) -> None:
        axes = [axis for axis in range(args[0].ndim) if axis != 1]
        variance, mean = torch.var_mean(in_single_precision(args[0]), dim=axes, correction=0)
        statistics.append((mean, variance))

    norms = batch_norms(module)
    has_state = any(
        isinstance(part, _NormBase | _SpectralNorm) and part.training for part in module.modules()
    )
    if norms or has_state:
        with hooked(norms, note):
            module(X.clone())
    return statistics


def jacobian_norms(
    module: nn.Module, X: torch.Tensor, n_classes: int, statistics: Statistics
) -> torch.Tensor:
    """Norms (B, d, L) of the rows of the Jacobians of the logits at theta0.

    The Jacobians are with respect to the input and to each pre-activation before the logits: the
    output of a layer in TAPPED, or of the normalization right after it, if that output has one row
    for each example. Batch normalization uses `statistics`, those of X. The Jacobians treat them as
    constants, but gradients of the norms flow through them.
    """
    differentiable = torch.is_grad_enabled()
    attention = nullcontext() if gram_layers(module) else plain_attention()
    with with_gradients(), isolated(module), attention:
        # Rows are repeated for each class, so that one backward pass gives all gradients.
        rows = X.repeat(n_classes, *[1] * (X.ndim - 1))
        if rows.is_floating_point() and not rows.requires_grad:
            rows.requires_grad_()
        logits, inputs = _logits_and_tapped(module, rows, statistics)
        if rows.is_floating_point():
            inputs.insert(0, rows)
        slopes: Sequence[torch.Tensor | None] = ()
        if inputs and logits.requires_grad:
            of_class = torch.eye(n_classes, dtype=logits.dtype, device=logits.device)
            of_class = of_class.repeat_interleave(len(X), dim=0)
            slopes = torch.autograd.grad(
                logits, inputs, of_class, create_graph=differentiable, allow_unused=True
            )
        squares = [
            in_single_precision(slope).reshape(n_classes, len(X), -1).square().sum(-1)
            for slope in slopes
            if slope is not None
        ]
    if not squares:
        raise ValueError(
            f"the detachment term has no Jacobian, because the logits of {type(module).__name__} "
            "depend on neither floating-point input nor an nn.Linear, nn.Embedding or convolution "
            "before the last layer; set detachment_weight=0"
        )
    return torch.stack(squares, dim=-1).add(_TINY).sqrt().transpose(0, 1)


def _logits_and_tapped(
    module: nn.Module, rows: torch.Tensor, statistics: Statistics
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits of a pass of rows (n, ...), and the pre-activations (n, ...) before the last one."""
    tapped: list[torch.Tensor] = []
    latest: Any = None  # the last tensor that `tap` handed on
    remaining = iter(statistics)

    def by_statistics(norm: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        channels = (1, -1, *[1] * (args[0].ndim - 2))
        factor, shift = factor_and_shift(norm, *next(remaining))
        return (args[0] * factor.view(channels) + shift.view(channels)).to(output.dtype)

    def tap(layer: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        nonlocal latest
        if isinstance(layer, NORMALIZATIONS):
            # An activation in place hands on the same tensor, but raises its version.
            if args[0] is not latest or latest._version:
                return output
            tapped.pop()
        elif len(output) != len(rows):  # an expert of a mixture, for example, gets only some rows
            return output
        if not output.requires_grad:  # the output of frozen layers
            output = output.detach().requires_grad_()
        tapped.append(output)
        latest = output.clone()  # an operation in place must not change the tapped one
        return latest

    watched = [part for part in module.modules() if isinstance(part, (*TAPPED, *NORMALIZATIONS))]
    # A layer's hooks run in this order, and the second gets what the first returned.
    with hooked(batch_norms(module), by_statistics), hooked(watched, tap), _Hardsigmoid():
        logits = module(rows.clone())
    return logits, tapped[:-1]


class _Hardsigmoid(TorchFunctionMode):
    """Computes hardsigmoid from relu6, because PyTorch's has no second derivative."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.hardsigmoid:
            return nn.functional.relu6(args[0] + 3.0) / 6.0
        return func(*args, **(kwargs or {}))
