"""One pass of a module, looked at: its layers in the order of their calls, its logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .description import refusals_named
from .hooks import hooked, layer_named, names_of, step_by_step, untracked
from .logits import check_logits
from .registry import layer_type_of, parameter_stds

__all__ = ["Call", "Trace", "sees", "trace"]


# What hands a tensor's values to Python, such as for a choice between two ways.
_READS = {
    torch.Tensor.__bool__,
    torch.Tensor.__float__,
    torch.Tensor.__index__,
    torch.Tensor.__int__,
    torch.Tensor.item,
    torch.Tensor.numpy,
    torch.Tensor.tolist,
}


@dataclass(frozen=True)
class Call:
    """One call of a layer whose parameters are perturbed.

    Parameters
    ----------
    layer : str
        Its name in the module.
    n_positions : int
        Rows that the weights are multiplied by for one example: 1, its tokens or its pixels.
    first : bool
        Whether it sees the examples themselves.
    axis : int
        Axis of the output that counts examples; -1 where none does, as for what is the same for
        all examples.
    """

    layer: str
    n_positions: int
    first: bool
    axis: int = -1


@dataclass(frozen=True)
class Trace:
    """What one pass of a module has shown.

    Parameters
    ----------
    n_classes : int
        Logits of an example.
    calls : tuple of Call
        In their order.
    last : int
        Which of the calls gave the logits; -1 where none did.
    reused : frozenset of str
        Layers of several calls, or whose parameters another layer has too.
    away : tuple of str
        Parameters that act on the logits on other ways than through known layers.
    reads : tuple of str
        Layers, in words, that look at values of a tensor.
    n_numbers : int
        Numbers that the pass computes for one example.
    """

    n_classes: int
    calls: tuple[Call, ...]
    last: int
    reused: frozenset[str]
    away: tuple[str, ...]
    reads: tuple[str, ...]
    n_numbers: int


class _Reads(TorchFunctionMode):
    """Notes where values of tensors become Python's."""

    def __init__(self, called: Callable[[], str]) -> None:
        super().__init__()
        self.called = called
        self.places: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS and self.called() not in self.places:
            self.places.append(self.called())
        return func(*args, **(kwargs or {}))


def trace(module: nn.Module, X: torch.Tensor) -> Trace:
    """Look at one pass.

    Parameters
    ----------
    module : nn.Module
        In the mode of pre-training.
    X : Tensor of shape (B, ...)
        A few examples, at least three.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        If what the module returns are not logits (B, d) with d of 2 or more.
    """
    # Copies: a module may work in place on its input.
    X, fewer_rows = X.clone(), X[1:].clone()
    names = names_of(module)
    stds = parameter_stds(module, 1.0)
    called: list[tuple[Call, torch.Tensor]] = []
    fewer: list[torch.Size] = []
    numbers = 0

    def cut(layer: nn.Module, H: Any, output: Any) -> Any:
        """Hide the layer's own parameters from autograd, and nothing that came before."""
        cut = output.detach()
        if torch.is_floating_point(H):
            cut = cut + 0.0 * H.sum()
        positions = output.numel() // (output.shape[_channels(layer)] * len(X))
        called.append((Call(names[layer], max(positions, 1), sees(H, X)), cut))
        return cut

    def count(layer: nn.Module, H: Any, output: Any) -> None:
        nonlocal numbers
        if isinstance(output, torch.Tensor):
            numbers += output.numel()

    def note(layer: nn.Module, H: Any, output: Any) -> None:
        fewer.append(output.shape)

    known = [layer for layer in names if _is_perturbed(layer)]
    # Cuts come first: the count sees what goes on.
    hooks = [(layer, cut) for layer in known] + [(layer, count) for layer in names]
    with torch.enable_grad(), step_by_step(), untracked(module), hooked(hooks):
        named = refusals_named(module, X)
        with layer_named(module) as current, _Reads(current) as reads, named:
            logits = module(X)
        check_logits(module, logits, len(X))
        away = _reached(logits, module, stds.keys())
    notes = [(layer, note) for layer in known]
    with torch.no_grad(), step_by_step(), untracked(module), hooked(notes):
        module(fewer_rows)
    last = [i for i, (_, cut) in enumerate(called) if _is_same(cut, logits)]
    calls = tuple(
        replace(call, axis=_axis(cut.shape, less, len(X)))
        for (call, cut), less in zip(called, fewer, strict=False)
    )
    return Trace(
        n_classes=logits.shape[1],
        calls=calls,
        last=last[-1] if last else -1,
        reused=_reused(module, known, names, calls),
        away=away,
        reads=tuple(reads.places),
        n_numbers=-(-numbers // len(X)),
    )


def _is_perturbed(layer: nn.Module) -> bool:
    known = layer_type_of(layer)
    return known is not None and bool(known.stds(layer, 1.0))


def _reached(logits: torch.Tensor, module: nn.Module, names: Any) -> tuple[str, ...]:
    parameters = {name: p for name, p in module.named_parameters() if name in names}
    if not (logits.requires_grad and parameters):
        return ()
    slopes = torch.autograd.grad(logits.sum(), list(parameters.values()), allow_unused=True)
    return tuple(name for name, slope in zip(parameters, slopes, strict=True) if slope is not None)


def _is_same(output: torch.Tensor, logits: torch.Tensor) -> bool:
    """Whether logits are a layer's output, or a view of all of it, and were not changed since."""
    same = output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel()
    return same and output._version == 0


def _axis(shape: torch.Size, fewer: torch.Size, n_rows: int) -> int:
    """The first axis that is in proportion to the number of examples."""
    for axis, (own, less) in enumerate(zip(shape, fewer, strict=False)):
        if own != less and own * (n_rows - 1) == less * n_rows:
            return axis
    return -1


def sees(H: Any, X: torch.Tensor) -> bool:
    """Whether an input of a layer are the examples themselves, in another shape perhaps.

    `X` are rows of their own; once something has worked in place on them, they are others.
    """
    if X._version:
        return False
    same = H.data_ptr() == X.data_ptr() and H.numel() == X.numel() and H.dtype == X.dtype
    return same and H.is_contiguous() and not H.requires_grad


def _channels(layer: nn.Module) -> int:
    known = layer_type_of(layer)
    assert known is not None
    return known.channels


def _reused(
    module: nn.Module,
    known: list[nn.Module],
    names: dict[nn.Module, str],
    calls: tuple[Call, ...],
) -> frozenset[str]:
    order = [call.layer for call in calls]
    owners: dict[int, list[str]] = {}
    for layer in known:
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(names[layer])
    shared = {name for own in owners.values() if len(own) > 1 for name in own}
    return frozenset(shared | {name for name in order if order.count(name) > 1})
