"""Modules whose hidden weights can be scaled without changing the function."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

__all__ = ["chain_of"]

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# What maps c x to c times what it maps x to, for c > 0, without parameters.
_HOMOGENEOUS = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AvgPool3d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveMaxPool3d,
)


def chain_of(module: nn.Module) -> tuple[str, ...]:
    """Names of a module's layers, if each hands a scale of its output on to the next one.

    That is known of an :class:`torch.nn.Sequential`, or one in another, of linear layers,
    convolutions, and parts that are positively homogeneous, each of them there once, with weights
    of their own that are all learned. A layer's weights are then multiplied by c, its biases by
    that and the factors before it, and the last layer's weights divided by the product.

    Returns
    -------
    tuple of str
        The first one first; empty where it is not known.
    """
    if type(module) is not nn.Sequential:
        return ()
    parts = list(_parts(module, ""))
    kinds = (*_LAYERS, *_HOMOGENEOUS)
    # Exactly these: a subclass may do something else.
    if any(type(part) not in kinds or _is_changed(part) for _, part in parts):
        return ()
    layers = [(name, part) for name, part in parts if type(part) in _LAYERS]
    weights = [p for _, part in layers for p in part.parameters()]
    alone = len({id(p) for p in weights}) == len(weights)
    if not (alone and all(p.requires_grad for p in weights)):
        return ()
    return tuple(name for name, _ in layers)


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The parts of nested sequences, in the order of their calls."""
    if type(module) is not nn.Sequential or _is_changed(module):
        yield name, module
        return
    for own, child in module._modules.items():
        assert child is not None
        yield from _parts(child, f"{name}.{own}" if name else own)


def _is_changed(part: nn.Module) -> bool:
    return bool("forward" in vars(part) or part._forward_hooks or part._forward_pre_hooks)
