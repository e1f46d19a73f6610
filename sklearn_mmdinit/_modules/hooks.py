"""Changes to a module that are taken back whatever happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase

from .embedding import with_dense_gradients_

__all__ = [
    "Hook",
    "aside",
    "hooked",
    "layer_named",
    "names_of",
    "pretraining_mode",
    "replaced_inputs",
    "step_by_step",
    "unfused",
    "untracked",
]

# Takes a layer, its first input and its output; returns an output in its place, or None.
Hook = Callable[[nn.Module, Any, Any], Any]


def _first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a layer was called with."""
    return next(iter((*args, *kwargs.values())), None)


@contextmanager
def hooked(hooks: Iterable[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Let hooks see, and change, the outputs of layers for a while.

    They come in their order, and before those that the module has itself: what they see is a
    layer's own output, and its hooks see what they return.

    Parameters
    ----------
    hooks : iterable of (nn.Module, callable)
        Layers and what is called after each of their passes.
    """
    with ExitStack() as stack:
        for layer, hook in reversed([*hooks]):

            def after(
                layer: nn.Module, args: Any, kwargs: Any, output: Any, hook: Hook = hook
            ) -> Any:
                return hook(layer, _first_input(args, kwargs), output)

            handle = layer.register_forward_hook(after, prepend=True, with_kwargs=True)
            stack.callback(handle.remove)
        yield


@contextmanager
def replaced_inputs(
    layers: Iterable[nn.Module], replace: Callable[[nn.Module, Any], Any]
) -> Iterator[None]:
    """Let layers be called with other inputs for a while.

    Parameters
    ----------
    layers : iterable of nn.Module
        Whose inputs may be replaced.
    replace : callable
        Takes a layer and its first input; returns another one, or None where it stays.
    """

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        new = replace(layer, _first_input(args, kwargs))
        if new is None:
            return None
        if args:
            return (new, *args[1:]), kwargs
        return args, {**kwargs, next(iter(kwargs)): new}

    with ExitStack() as stack:
        for layer in layers:
            handle = layer.register_forward_pre_hook(before, with_kwargs=True)
            stack.callback(handle.remove)
        yield


def tracking_norms(module: nn.Module) -> list[_NormBase]:
    """Layers that may keep statistics of the rows they see."""
    return [layer for layer in module.modules() if isinstance(layer, _NormBase)]


def pretraining_mode(module: nn.Module) -> None:
    """Dropout off, normalisation by the statistics of the mini-batch, and no sparse gradients.

    Normalisation that is in evaluation mode in a module that is not was frozen: it stays so.
    """
    with_dense_gradients_(module)
    norms = tracking_norms(module)
    frozen = [module.training and not norm.training for norm in norms]
    module.eval()
    for norm, is_frozen in zip(norms, frozen, strict=True):
        norm.train(not is_frozen)


def names_of(module: nn.Module) -> dict[nn.Module, str]:
    """Name of each module in a module; of one with several, the first."""
    return {layer: name for name, layer in module.named_modules()}


@contextmanager
def layer_named(module: nn.Module) -> Iterator[Callable[[], str]]:
    """A function that says which layer was called last and has not returned."""
    names = names_of(module)
    open_calls: list[nn.Module] = []
    handles: list[Any] = []

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

    try:
        for layer in names:
            handles.append(layer.register_forward_pre_hook(enter))
            handles.append(layer.register_forward_hook(leave))
        yield called
    finally:
        for handle in handles:
            handle.remove()


class _Switched:
    """A setting that all threads share: the first one in switches it, the last one out back."""

    def __init__(self, switch: Callable[[], AbstractContextManager[Any]]) -> None:
        self._switch = switch
        self._lock, self._inside = threading.Lock(), 0
        self._stack = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._stack.enter_context(self._switch())
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
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


# Attention without PyTorch's shorter way through a layer, on which there are no hooks.
step_by_step = _Switched(_without_fast_path)

_by_plain_operations = _Switched(lambda: sdpa_kernel(SDPBackend.MATH))


@contextmanager
def unfused() -> Iterator[None]:
    """Attention by plain operations for a while.

    Its fused kernels have no second derivative, and no form under :func:`torch.func.vmap`.
    """
    with step_by_step(), _by_plain_operations():
        yield


@contextmanager
def aside() -> Iterator[None]:
    """For a pass that is only to be looked at: what any layer draws in it leaves no trace."""
    with torch.random.fork_rng(devices=[]), step_by_step():
        yield


@contextmanager
def untracked(module: nn.Module) -> Iterator[None]:
    """Normalise by the rows of a pass for a while, with no trace in the running statistics."""
    norms = [norm for norm in tracking_norms(module) if norm.training]
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
