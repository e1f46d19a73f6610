"""Inspects a module once, by passes: its sampler, the layer that returns its logits, its state."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .._base.environment import own_generators, with_gradients
from .._base.random_streams import StepRandom
from .._base.validation import add_error_context, warn_user
from ..theta0 import qualified_name
from . import NORMALIZATIONS, TAPPED, Tap, parameter_stds
from .functional import functional_logits
from .gram import gram_layers, gram_logits, has_hooks
from .passes import explained_single_row, hidden_activations, hooked, isolated

SAMPLERS = ("auto", "gram", "functional")

# Number of examples of an inspection. A second pass has one example fewer: the axis along which an
# output is then shorter is the axis of examples. Batch normalization needs at least two.
N_EXAMPLES = 4


@dataclass(frozen=True)
class ModuleInfo:
    """What the passes of a module need to know about it."""

    n_classes: int  # logits of an example
    sampler: str  # "gram" or "functional"
    n_biases: int | None  # outputs of last_layer; None if it has no bias that is learned
    why_functional: str = ""  # why the sampler is not "gram"
    by_vmap: bool = True  # False: one network after the other
    n_activations: int = 0  # values that a pass computes for one example
    taps: tuple[Tap, ...] = ()  # the calls that return pre-activations, but not the logits
    calls: tuple[str, ...] = ()  # names of the layers of TAPPED, in the order of all calls
    last_layer: str = ""  # the linear layer that returns the logits, or hidden_layer; "": none
    draws: bool = False  # whether a pass draws random numbers
    stateful: bool = False  # whether a pass changes the module's state, or runs a user's hooks


def perturbed_logits(
    module: nn.Module,
    info: ModuleInfo,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    random: StepRandom,
) -> torch.Tensor:
    """Logits (K, B, d) of K networks around a module on X (B, ...), by its sampler."""
    if info.sampler == "gram":
        return gram_logits(gram_layers(module), X, n_copies, scale, random, draws=info.draws)
    return functional_logits(
        module,
        X,
        n_copies,
        scale,
        random,
        by_vmap=info.by_vmap,
        n_activations=info.n_activations,
        draws=info.draws,
    )


@with_gradients()
def inspect_module(
    module: nn.Module,
    X: torch.Tensor,
    sampler: str = "auto",
    hidden_layer: str | None = None,
) -> ModuleInfo:
    """Inspect a module by forward passes, in its current mode, on some examples of X (n, ...).

    The module and PyTorch's generators are unchanged afterwards. If no sampler can perturb the
    module, an error says why.
    """
    X = X.detach()[torch.arange(N_EXAMPLES, device=X.device) % len(X)]
    name = type(module).__name__
    if not parameter_stds(module, 1.0):
        raise ValueError(f"the module {name} has no parameters to perturb that require a gradient")
    seen = _observe(module, X)
    calls = seen.calls
    last = _last_call(calls, hidden_layer, module)
    last_layer = hidden_layer or ""
    if hidden_layer is not None:
        with torch.no_grad(), isolated_pass(module):
            # Raises unless there is one row of activations for each example.
            hidden_activations(module, X, hidden_layer)
    elif last is not None and last.gives_logits:
        is_linear = isinstance(module.get_submodule(last.layer), nn.Linear)
        last_layer = last.layer if is_linear else ""
    bias: Any = module.get_submodule(last_layer).bias if last_layer else None
    info = ModuleInfo(
        n_classes=seen.n_classes,
        sampler="gram",
        n_activations=seen.n_activations,
        taps=tuple(call.tap for call in calls if call is not last and call.tap.axis >= 0),
        calls=tuple(call.layer for call in calls),
        last_layer=last_layer,
        n_biases=len(bias) if bias is not None and bias.requires_grad else None,
        draws=seen.draws,
        stateful=seen.stateful or has_hooks(module),
    )
    if sampler != "functional" and gram_layers(module) and X.is_floating_point():
        return info
    if sampler == "functional":
        why = "sampler='functional' was given"
    elif has_hooks(module):
        why = "it has hooks, which the gram sampler would not call"
    else:
        why = (
            "gram serves an MLP, or an nn.Sequential of nn.Linear, elementwise layers, "
            "nn.BatchNorm1d and a first nn.Flatten, if its last layer is nn.Linear, each layer is "
            "used once and X holds floats"
        )
    if sampler == "gram":
        raise ValueError(
            f"sampler='gram' cannot perturb the module {name}: {why}; use sampler='functional' or "
            "'auto'"
        )
    by_vmap = _passes_by_vmap(module, X)
    if seen.idle:
        warn_user(
            f"the forward pass of the module {name} does not use its layers {seen.idle}: their "
            "weights are not learned"
        )
    return replace(info, sampler="functional", why_functional=why, by_vmap=by_vmap)


@with_gradients()
def inspect_logits(module: nn.Module, X: torch.Tensor) -> tuple[int, str]:
    """Number of classes, and name of the linear layer that returns the logits of X, or ""."""
    names = {layer: name for name, layer in module.named_modules()}
    outputs: list[tuple[str, torch.Tensor]] = []

    linears = [layer for layer in names if isinstance(layer, nn.Linear)]
    watched = hooked(linears, lambda layer, args, output: outputs.append((names[layer], output)))
    with isolated_pass(module), _context_of_pass(module, X), watched:
        logits = module(X)
    check_logits(module, logits, X)
    _warn_if_unregistered(module, logits)
    last = [name for name, output in outputs if output.ndim == 2 and _is_same(output, logits)]
    return logits.shape[1], last[-1] if last else ""


# Inspection


@dataclass(frozen=True)
class _Call:
    """One call of a layer of TAPPED."""

    layer: str
    tap: Tap  # its axis is -1 if the output has no axis of examples
    gives_logits: bool


class _Reads(TorchFunctionMode):
    """Records whether a pass converts tensor values to Python ones, for example in an ``if``."""

    _READERS = frozenset(
        getattr(torch.Tensor, name)
        for name in ("__bool__", "__float__", "__index__", "__int__", "item", "tolist")
    )
    has_read = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.has_read |= func in self._READERS
        return func(*args, **(kwargs or {}))


class _Observed(NamedTuple):
    """Results of the passes of an inspection."""

    calls: list[_Call]
    n_classes: int
    n_activations: int  # values that the pass computes for one example
    draws: bool  # whether it draws random numbers
    stateful: bool  # whether it changes the module's state
    idle: list[str]  # layers that it does not call and whose parameters do not affect the logits


def _observe(module: nn.Module, X: torch.Tensor) -> _Observed:
    """Run a pass on X, and one with a row fewer."""
    names = {layer: name for name, layer in module.named_modules()}
    outputs: list[tuple[str, torch.Tensor]] = []
    taps: list[Tap] = []  # of each output: its call, or that of a normalization right after it
    latest: Any = None  # the last pre-activation
    fewer: list[torch.Size] = []
    n_calls: Counter[nn.Module] = Counter()
    n_numbers = 0

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal n_numbers, latest
        tap = Tap(names[layer], n_calls[layer])
        n_calls[layer] += 1
        if isinstance(output, torch.Tensor):
            n_numbers += output.numel()
        if isinstance(layer, TAPPED):
            outputs.append((names[layer], output))
            taps.append(tap)
            latest = output
        # An activation in place hands on the same tensor, but raises its version.
        elif isinstance(layer, NORMALIZATIONS) and args[0] is latest and not latest._version:
            taps[-1], latest = tap, output

    with isolated_pass(module):
        state = _state_hash(module)
        generators = _generators_hash()
        with hooked(list(names), note), _Reads() as reads, _context_of_pass(module, X):
            logits = module(X.clone())
        draws = _generators_hash() != generators
        check_logits(module, logits, X)
        tapped = [layer for layer in names if isinstance(layer, TAPPED)]
        shapes = hooked(tapped, lambda layer, args, output: fewer.append(output.shape))
        with torch.no_grad(), shapes:
            module(X[1:].clone())
        stateful = state == "unknown" or state != _state_hash(module)
    if not logits.requires_grad:
        raise ValueError(
            f"the logits of {type(module).__name__} depend on no parameter that requires a gradient"
        )
    _warn_if_unregistered(module, logits)
    calls = [
        _Call(name, tap._replace(axis=_axis(output.shape, less, len(X))), _is_same(output, logits))
        for (name, output), tap, less in zip(outputs, taps, fewer, strict=False)
    ]
    # If the pass reads values, other rows may call other layers.
    idle = [] if reads.has_read else _idle_layers(module, logits, {names[part] for part in n_calls})
    return _Observed(calls, logits.shape[1], -(-n_numbers // len(X)), draws, stateful, idle)


@contextmanager
def isolated_pass(module: nn.Module) -> Iterator[None]:
    """Restore the module's buffers and all random generators after this block."""
    with own_generators(), isolated(module):
        buffers_of = [(part, dict(part._buffers)) for part in module.modules()]
        values = [(buffer, buffer._version, buffer.clone()) for buffer in module.buffers()]
        try:
            yield
        finally:
            for part, buffers in buffers_of:
                part._buffers.update(buffers)
            for buffer, version, value in values:
                if buffer._version != version:
                    buffer.data.copy_(value)


@contextmanager
def _context_of_pass(module: nn.Module, X: torch.Tensor) -> Iterator[None]:
    shape, name = tuple(X.shape[1:]), qualified_name(module)
    context = f"the module {name} was given examples of shape {shape} and type {X.dtype}"
    if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4):
        context += "; convolutions need channels first: X.transpose(0, 3, 1, 2), or permute"
    with add_error_context(context), explained_single_row():
        yield


def check_logits(module: nn.Module, logits: Any, X: torch.Tensor) -> None:
    """Raise a ValueError unless a module returned floats (n, d) with d >= 2, on X's device."""
    name, got = type(module).__name__, type(logits).__name__
    if isinstance(logits, torch.Tensor):
        got = f"{logits.dtype} of shape {tuple(logits.shape)}, {logits.layout}, {logits.device}"
        dense = logits.layout == torch.strided and logits.device == X.device
        right = logits.ndim == 2 and len(logits) == len(X) and logits.shape[1] >= 2
        if right and dense and logits.is_floating_point():
            _warn_if_probabilities(name, logits.detach().float())
            return
    valid = f"logits, floats of shape ({len(X)}, n_classes >= 2)"
    raise ValueError(f"the module {name} must return {valid}; it returned {got}")


def _warn_if_probabilities(name: str, logits: torch.Tensor) -> None:
    sums = logits.sum(dim=1)
    sums_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    # Logits that are the same for all rows may be any numbers, such as 0 and 1.
    if sums_to_1 and bool((logits >= 0).all() and (logits != logits[:1]).any()):
        warn_user(f"the module {name} returns probabilities; remove its softmax to return logits")


def _warn_if_unregistered(module: nn.Module, logits: torch.Tensor) -> None:
    """Warn if logits depend on tensors that require a gradient but are not in ``parameters()``."""
    registered = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    unregistered, nodes, seen = [], [logits.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in registered:
            unregistered.append(tuple(leaf.shape))
    if unregistered:
        warn_user(
            f"the logits of {type(module).__name__} depend on tensors of shapes "
            f"{sorted(unregistered)} that the module does not register: they are neither learned "
            "nor part of theta0; keep layers in an nn.ModuleList or nn.ModuleDict, and tensors in "
            "an nn.Parameter or nn.ParameterList"
        )


def _idle_layers(module: nn.Module, logits: torch.Tensor, called: set[str]) -> list[str]:
    """Layers that were not called and whose parameters do not affect the logits."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(logits.sum(), list(parameters.values()), allow_unused=True)
    idle = [name for name, slope in zip(parameters, slopes, strict=True) if slope is None]
    return sorted({name.rpartition(".")[0] for name in idle} - called)


def _generators_hash() -> str:
    """A hash of the states of the global generators of PyTorch, Python and NumPy."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    arrays = [state.numpy() for state in states]
    return str(joblib.hash((arrays, random.getstate(), np.random.get_state())))  # noqa: NPY002


def _state_hash(module: nn.Module) -> str:
    """A hash of a module's attributes and its buffers' versions; "unknown" if pickling fails."""
    common = vars(nn.Module()).keys() | {"forward"}
    attributes = [
        {name: value for name, value in vars(part).items() if name not in common}
        for part in module.modules()
    ]
    versions = [(id(buffer), buffer._version) for buffer in module.buffers()]
    try:
        return str(joblib.hash((attributes, versions)))
    except Exception:  # something cannot be pickled
        return "unknown"


def _is_same(output: torch.Tensor, logits: torch.Tensor) -> bool:
    """Whether logits are the unchanged output of a layer, or a view of all of it."""
    same = output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel()
    return same and output._version == 0


def _axis(shape: torch.Size, fewer: torch.Size, n_rows: int) -> int:
    """The first axis whose size is proportional to the number of examples; -1 if there is none."""
    for axis, (size, size_of_fewer) in enumerate(zip(shape, fewer, strict=False)):
        if size != size_of_fewer and size * (n_rows - 1) == size_of_fewer * n_rows:
            return axis
    return -1


def _last_call(calls: Sequence[_Call], hidden_layer: str | None, module: nn.Module) -> _Call | None:
    """The call that returns the logits, or None if there are no calls.

    If none returns them: the last call of `hidden_layer`, or of all if `hidden_layer` is None.
    """
    if hidden_layer is not None:
        linear = linear_layers(module, [call.layer for call in calls])
        if hidden_layer not in linear:
            raise ValueError(
                f"hidden_layer must be a linear layer of {qualified_name(module)}, one of "
                f"{linear}, got {hidden_layer!r}"
            )
    giving_logits = [call for call in calls if call.gives_logits]
    named = [call for call in calls if hidden_layer in (None, call.layer)]
    return next(reversed(giving_logits or named), None)


def linear_layers(module: nn.Module, calls: Sequence[str]) -> list[str]:
    """Names of linear layers among the calls; a ValueError if there are no hidden activations."""
    linear = sorted({name for name in calls if isinstance(module.get_submodule(name), nn.Linear)})
    if linear in ([], [""]):
        what = "is a single linear layer" if linear else "calls no nn.Linear"
        raise ValueError(
            f"the module {qualified_name(module)} {what}, so it has no hidden activations (the "
            "inputs of its last nn.Linear); add an nn.Linear at the end, after a hidden layer (and "
            "an nn.Flatten, if that is a convolution), or leave out hidden_layer, coherence and "
            "output='hidden'"
        )
    return linear


def _passes_by_vmap(module: nn.Module, X: torch.Tensor) -> bool:
    """Whether vmap can compute networks; raises if they cannot be computed one by one either."""
    try:
        _pass_two_networks(module, X, by_vmap=True)
        return True
    except Exception as error:
        first_line = str(error).partition("\n")[0]
        vmap_fails = f"torch.func.vmap fails with {type(error).__name__}: {first_line}"
    name = type(module).__name__
    with add_error_context(
        f"no sampler can perturb the module {name}: {vmap_fails}, and without vmap the error above "
        "is raised"
    ):
        _pass_two_networks(module, X, by_vmap=False)
    warn_user(
        f"networks around the module {name} are computed one after the other, which is slow: "
        f"{vmap_fails}"
    )
    return False


def _pass_two_networks(module: nn.Module, X: torch.Tensor, by_vmap: bool) -> None:
    """A forward and a backward pass of the functional sampler, whose errors are raised."""
    # torch.utils.checkpoint would compute a layer again in the backward pass, when the perturbed
    # parameters are no longer in the module.
    no_recomputation = torch.autograd.graph.disable_saved_tensors_hooks(
        "switch off activation checkpointing (torch.utils.checkpoint) in the module"
    )
    with isolated_pass(module), no_recomputation:
        logits = functional_logits(module, X, 2, 1.0, StepRandom(0, X.device), by_vmap=by_vmap)
        learned = [p for p in module.parameters() if p.requires_grad]
        torch.autograd.grad(logits.sum(), learned, allow_unused=True)
