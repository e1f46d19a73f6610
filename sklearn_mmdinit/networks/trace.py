"""A module looked at: its layers in the order of their calls, its logits, what it can bear."""

from __future__ import annotations

import copy
import pickle
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from .._base.environment import kept_generators
from .._base.mlp import MLP
from .._base.module_factory import ModuleFactory
from .._base.validation import add_error_context, warn_user
from ..theta0 import Architecture, arrays_of, digest_of, qualified_name
from . import hooks
from .layers import EMBEDDINGS, parameter_stds, perturbed_type_of

# What hands a tensor's values to Python, such as for a choice between two ways.
_READERS = ("__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist")
_READS = {getattr(torch.Tensor, name) for name in _READERS}

# What takes a tensor for its type or shape alone.
_OF_ITS_KIND = re.compile("to$|type_as$|new_|.*_like$")

# Layers whose outputs are in proportion to their weights and biases.
_SCALING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# So large and so small that what bends or is cut off anywhere shows.
_FACTORS = (2.0**12, 2.0**-12)


@dataclass(frozen=True)
class Call:
    """One call of a layer whose parameters are perturbed."""

    layer: str  # its name in the module
    # Rows that the weights are multiplied by for one example: 1, its tokens or its pixels.
    n_positions: int
    first: bool  # whether it sees the examples themselves
    # Axis of the output that counts examples; -1 where none does, as for what is the same for all
    # examples.
    axis: int = -1


@dataclass(frozen=True)
class Trace:
    """What one pass of a module has shown."""

    n_classes: int  # logits of an example
    calls: tuple[Call, ...]  # in their order
    last: int  # which of the calls gave the logits; -1 where none did
    reused: frozenset[str]  # layers of several calls, or whose parameters another layer has too
    # Parameters that act on the logits on other ways than through known layers.
    away: tuple[str, ...]
    reads: tuple[str, ...]  # layers, in words, that look at values of a tensor
    n_numbers: int  # numbers that the pass computes for one example
    writes: bool  # whether the module works in place on its input
    # Whether a pass leaves anything in the module, or draws random numbers: then no two passes may
    # run at once.
    remembers: bool


def takes_integers(module: nn.Module) -> bool:
    """Whether a module is handed whole numbers as such, and not as floats."""
    return any(isinstance(part, EMBEDDINGS) for part in module.modules())


def as_examples(X: np.ndarray, integers: bool) -> torch.Tensor:
    """Rows as a module takes them, a copy on the CPU."""
    whole = integers and np.asarray(X).dtype.kind in "iu"
    # A copy of its own: rows may be read-only memory maps.
    return torch.from_numpy(np.array(X, dtype=np.int64 if whole else np.float32))


def describe(
    source: ModuleFactory, module: nn.Module, input_shape: tuple[int, ...], n_classes: int = 0
) -> Architecture:
    """The description of a module from a source, as far as it is known without a pass."""
    keywords = module.keywords if isinstance(module, MLP) else source.keywords
    return Architecture(
        module=qualified_name(module),
        parameters=tuple((name, repr(value)) for name, value in keywords.items()),
        input_shape=input_shape,
        n_classes=n_classes,
        digest=digest_of({name: array.shape for name, array in arrays_of(module).items()}),
    )


def describe_with_logits(source: ModuleFactory, module: nn.Module, X: np.ndarray) -> Architecture:
    """The description of a module that is only to be trained, from one evaluation of it."""
    module.float().cpu().eval()
    examples = as_examples(X, takes_integers(module))
    with torch.no_grad(), hooks.aside(), _refusals_named(module, examples):
        logits = module(examples)
    _check_logits(module, logits, examples)
    return describe(source, module, X.shape[1:], logits.shape[1])


@contextmanager
def _refusals_named(module: nn.Module, examples: torch.Tensor) -> Iterator[None]:
    """Whatever a pass of a module ends with, as a ValueError that names the examples."""
    taken = f"examples of shape {tuple(examples.shape[1:])} and type {examples.dtype}"
    refused = f"the module {qualified_name(module)} does not take {taken}"
    with add_error_context(refused):
        yield


def _check_logits(module: nn.Module, logits: Any, X: torch.Tensor) -> None:
    """Raise a ValueError unless a module returned floats (n, d) with d of 2 or more, beside X."""
    name, found, n_rows = type(module).__name__, type(logits).__name__, len(X)
    if isinstance(logits, torch.Tensor):
        found = f"{logits.dtype} of shape {tuple(logits.shape)}, {logits.layout}, {logits.device}"
        there = logits.layout == torch.strided and logits.device == X.device
        right = logits.ndim == 2 and len(logits) == n_rows and logits.shape[1] >= 2
        if right and there and logits.is_floating_point():
            sums = logits.detach().float().sum(dim=1)
            sums_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
            # Logits that are the same for all rows may be any numbers, such as 0 and 1.
            if sums_to_1 and bool((logits >= 0).all() and (logits != logits[:1]).any()):
                said = f"the module {name} returns probabilities: take its softmax out, for logits"
                warn_user(said)
            return
    valid = f"logits, floats of shape ({n_rows}, n_classes >= 2)"
    raise ValueError(f"the module {name} must return {valid}; it returned {found}")


class _Uses(TorchFunctionMode):
    """Notes where values of tensors become Python's, and what is computed with parameters."""

    def __init__(self, called: Callable[[], str]) -> None:
        super().__init__()
        self.called = called
        self.places: list[str] = []
        self.parameters: set[int] = set()
        self.hidden: set[int] = set()  # parameters of the known layer that is under way

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READS and self.called() not in self.places:
            self.places.append(self.called())
        result, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if isinstance(result, torch.Tensor) and not _OF_ITS_KIND.match(name):
            used = {id(leaf) for leaf in tree_leaves((args, kwargs)) if type(leaf) is nn.Parameter}
            self.parameters |= used - self.hidden
        return result


def trace(module: nn.Module, X: torch.Tensor) -> Trace:
    """Look at one pass of a module on examples X (n, ...), and at one with a row fewer."""
    # Copies: a module may work in place on its input.
    X, fewer_rows = X.clone(), X[1:].clone()
    names = hooks.names_of(module)
    perturbed = {layer: kind for layer in names if (kind := perturbed_type_of(layer))}
    called: list[tuple[Call, torch.Tensor]] = []
    fewer: list[torch.Size] = []
    numbers = 0

    def cut(layer: nn.Module, H: Any) -> Any:
        """Hide the layer's own parameters, and nothing that came before."""
        uses.hidden = {id(parameter) for parameter in layer.parameters(recurse=False)}
        output = hooks.own_output(layer, H).detach()
        uses.hidden = set()
        if torch.is_floating_point(H):
            output = output + 0.0 * H.sum()
        positions = output.numel() // (output.shape[perturbed[layer].channels] * len(X))
        called.append((Call(names[layer], max(positions, 1), sees(H, X)), output))
        return output

    def note(layer: nn.Module, H: Any) -> Any:
        output = hooks.own_output(layer, H)
        fewer.append(output.shape)
        return output

    def count(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal numbers
        if isinstance(output, torch.Tensor):
            numbers += output.numel()

    memory = _memory_of(module)
    with kept_generators():
        state = _states()
        with ExitStack() as stack, torch.enable_grad(), _looked_through(module, perturbed, cut):
            for layer in names:
                stack.callback(layer.register_forward_hook(count).remove)
            current = stack.enter_context(hooks.layer_named(module))
            with _Uses(current) as uses, _refusals_named(module, X):
                logits = module(X)
        draws = pickle.dumps(_states()) != pickle.dumps(state)
        _check_logits(module, logits, X)
        with torch.no_grad(), _looked_through(module, perturbed, note):
            module(fewer_rows)
        random.setstate(state[1])
        np.random.set_state(state[2])  # noqa: NPY002
    away = _reached(logits, module, uses.parameters)
    last = [i for i, (_, output) in enumerate(called) if _is_same(output, logits)]
    pairs = zip(called, fewer, strict=False)
    calls = tuple(replace(c, axis=_axis(out.shape, less, len(X))) for (c, out), less in pairs)
    if not uses.places:  # which may call other layers for other rows
        used = {*(call.layer for call in calls), *(name.rpartition(".")[0] for name in away)}
        _warn_if_idle(module, [layer for layer in perturbed if names[layer] not in used], names)
    return Trace(
        n_classes=logits.shape[1],
        calls=calls,
        last=last[-1] if last else -1,
        reused=_reused(perturbed, names, calls),
        away=away,
        reads=tuple(uses.places),
        n_numbers=-(-numbers // len(X)),
        writes=bool(X._version),
        remembers=draws or _memory_of(module)[0] != memory[0],
    )


def _states() -> tuple[Any, ...]:
    """Where the global generators of PyTorch, Python and NumPy stand."""
    return torch.get_rng_state().numpy(), random.getstate(), np.random.get_state()  # noqa: NPY002


def _stands(thing: Any) -> Any:
    """Where a generator of a module's own stands; None of anything else."""
    if isinstance(thing, random.Random):
        return thing.getstate()
    if isinstance(thing, np.random.Generator):
        return repr(thing.bit_generator.state)
    return thing.get_state().tolist() if isinstance(thing, torch.Generator) else None


def _warn_if_idle(
    module: nn.Module, layers: Sequence[nn.Module], names: dict[nn.Module, str]
) -> None:
    """Say so where layers in no pass, such as one in a closure, are to be learned."""
    if idle := [names[own] for own in layers if any(p.requires_grad for p in own.parameters())]:
        said = f"no pass of the module {type(module).__name__} calls its layers {idle}"
        warn_user(f"{said}: they stay as they are")


@contextmanager
def _looked_through(
    module: nn.Module, layers: Iterable[nn.Module], forward: hooks.Forward
) -> Iterator[None]:
    """Let a function stand for layers in a pass that leaves no trace in the module."""
    others = dict.fromkeys(layers, forward)
    with hooks.step_by_step(), hooks.untracked(module), hooks.replaced(others):
        yield


def _memory_of(module: nn.Module) -> tuple[list[Any], list[Any]]:
    """What a module keeps beside its parts, by identity; and the things, to keep them alive."""
    of_any = {*vars(nn.Module()), "forward"}
    things: list[Any] = []
    versions = []
    for part in module.modules():
        for name, value in vars(part).items():
            if name not in of_any:
                inside = [*value, *value.values()] if isinstance(value, dict) else value
                things += [value, *(inside if isinstance(inside, list | set | deque) else ())]
                things += getattr(value, "__dict__", {}).values()
        things += part._buffers.values()
        versions += [b._version for b in part._buffers.values() if b is not None]
    return [*map(id, things), *versions, *filter(None, map(_stands, things))], things


def _reached(logits: torch.Tensor, module: nn.Module, used: set[int]) -> tuple[str, ...]:
    """Parameters that move the logits, or are used at all, where known layers hide theirs."""
    stds = parameter_stds(module, 1.0)
    parameters = {name: p for name, p in module.named_parameters() if name in stds}
    slopes: Sequence[Any] = [None] * len(parameters)
    if logits.requires_grad and parameters:
        slopes = torch.autograd.grad(logits.sum(), list(parameters.values()), allow_unused=True)
    pairs = zip(parameters.items(), slopes, strict=True)
    return tuple(name for (name, p), slope in pairs if slope is not None or id(p) in used)


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
    """Whether an input of a layer are the examples themselves, in another shape perhaps."""
    if X._version:
        return False
    same = H.data_ptr() == X.data_ptr() and H.numel() == X.numel() and H.dtype == X.dtype
    return same and H.is_contiguous() and not H.requires_grad


def _reused(
    perturbed: Iterable[nn.Module], names: dict[nn.Module, str], calls: tuple[Call, ...]
) -> frozenset[str]:
    order = [call.layer for call in calls]
    owners: dict[int, list[str]] = {}
    for layer in perturbed:
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(names[layer])
    shared = {name for own in owners.values() if len(own) > 1 for name in own}
    return frozenset(shared | {name for name in order if order.count(name) > 1})


def chain_of(module: nn.Module, found: Trace, examples: torch.Tensor) -> tuple[str, ...]:
    """Names of a module's layers, if each hands a scale of its output on to the next one."""
    names = tuple(call.layer for call in found.calls)
    if len(names) < 2 or found.reads or found.reused or found.away or found.last != len(names) - 1:
        return ()
    layers = [module.get_submodule(name) for name in names]
    # Exactly these: a subclass may do something else with its weights.
    if any(type(layer) not in _SCALING or not _is_learned(layer) for layer in layers):
        return ()
    return names if _hands_on(module, names, examples) else ()


def _is_learned(layer: nn.Module) -> bool:
    # Under a parametrisation the weight is no parameter of the layer's own.
    own = dict(layer.named_parameters(recurse=False))
    return "weight" in own and all(p.requires_grad for p in own.values())


def _hands_on(module: nn.Module, names: Sequence[str], examples: torch.Tensor) -> bool:
    """Whether the logits stay where any hidden layer is scaled."""
    layers = [module.get_submodule(name) for name in names]
    # What is learned will not stay where it is, such as a shift of 0.
    with torch.no_grad(), hooks.aside(), hooks.untracked(module), hooks.moved(module):
        before = module(examples.clone())
        for at in range(len(layers) - 1):
            for factor in _FACTORS:
                _scale_(layers[at:], factor)
                # Factors are powers of two: nothing is rounded.
                same = torch.equal(module(examples.clone()), before)
                _scale_(layers[at:], 1.0 / factor)
                if not same:
                    return False
    return True


def _scale_(layers: Sequence[Any], factor: float) -> None:
    """Scale the first one's outputs, and hand that on to the last one, which takes it out."""
    first, *_, last = layers
    first.weight.mul_(factor)
    for layer in layers[:-1]:
        if layer.bias is not None:
            layer.bias.mul_(factor)
    last.weight.div_(factor)


def layout_of(module: nn.Module, examples: torch.Tensor) -> torch.memory_format:
    """Channels last in memory for a module of convolutions that can be computed so."""
    if not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return torch.contiguous_format
    tried: Any = copy.deepcopy(module)  # whose `to` lacks the argument in PyTorch's annotations
    try:
        tried.to(memory_format=torch.channels_last)
        with torch.enable_grad(), hooks.aside():
            logits = tried(examples.clone())
            parameters = [p for p in tried.parameters() if p.requires_grad]
            torch.autograd.grad(logits.sum(), parameters, allow_unused=True)
    except RuntimeError:  # a view of what is in another order, or weights that have no such order
        return torch.contiguous_format
    return torch.channels_last
