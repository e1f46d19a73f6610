"""Inspects a module once, by a pass: its sampler, its logits and the layer that returns them."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._base.environment import own_generators, with_gradients
from .._base.random_streams import StepRandom
from .._base.validation import add_error_context, warn_user
from ..theta0 import qualified_name
from .functional import functional_logits
from .gram import gram_layers, gram_logits, has_hooks
from .noise import parameter_stds
from .passes import TAPPED, hooked

SAMPLERS = ("auto", "gram", "functional")

# Number of examples of an inspection. Batch normalization needs at least two.
N_EXAMPLES = 4


@dataclass(frozen=True)
class ModuleInfo:
    """What the passes of a module need to know about it."""

    n_classes: int  # logits of an example
    sampler: str  # "gram" or "functional"
    why_functional: str = ""  # why the sampler is not "gram"
    by_vmap: bool = True  # False: one network after the other
    n_activations: int = 0  # values that a pass computes for one example
    last_layer: str = ""  # the linear layer that returns the logits; "": none
    head: tuple[str, ...] = ()  # names of its parameters; empty if shared or frozen
    stateful: bool = False  # whether a pass sets attributes of the module, or runs a user's hooks


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
        return gram_logits(gram_layers(module), X, n_copies, scale, random)
    sizes: dict[str, Any] = {"by_vmap": info.by_vmap, "n_activations": info.n_activations}
    return functional_logits(module, X, n_copies, scale, random, **sizes)


@with_gradients()
def inspect_module(module: nn.Module, X: torch.Tensor, sampler: str = "auto") -> ModuleInfo:
    """Inspect a module by a pass of a copy, in its current mode, on some examples of X (n, ...).

    PyTorch's generators are unchanged afterwards. If no sampler can perturb the module, an error
    says why.
    """
    X = X.detach()[torch.arange(N_EXAMPLES, device=X.device) % len(X)]
    with own_generators(0):
        copied = copy.deepcopy(module)
        before = _attributes(copied)
        logits, outputs, n_numbers = _watched_pass(copied, X)
        stateful = has_hooks(module) or _attributes(copied) != before
    if not (logits.requires_grad and parameter_stds(module, 1.0)):
        what = "no parameter that requires a gradient and can be perturbed"
        raise ValueError(f"the logits of {type(module).__name__} depend on {what}")
    last_layer = _last_layer(module, outputs, logits)
    why, by_vmap = _why_functional(module, X, sampler), True
    if why:
        with own_generators(0):
            by_vmap = _passes_by_vmap(copy.deepcopy(module), X)
    return ModuleInfo(
        n_classes=logits.shape[1],
        sampler="functional" if why else "gram",
        why_functional=why,
        by_vmap=by_vmap,
        n_activations=-(-n_numbers // len(X)),
        last_layer=last_layer,
        head=own_parameters(module, last_layer),
        stateful=stateful,
    )


@with_gradients()
def inspect_logits(module: nn.Module, X: torch.Tensor) -> tuple[int, str]:
    """Number of classes, and name of the linear layer that returns the logits of X, or ""."""
    with own_generators(0):
        logits, outputs, _ = _watched_pass(copy.deepcopy(module), X)
    return logits.shape[1], _last_layer(module, outputs, logits)


# Inspection

_Outputs = list[tuple[str, torch.Tensor]]  # of calls of the layers of TAPPED, with their names


def _watched_pass(module: nn.Module, X: torch.Tensor) -> tuple[torch.Tensor, _Outputs, int]:
    """The logits of X, the outputs of layers, and how many numbers all layers returned."""
    names = {layer: name for name, layer in module.named_modules()}
    outputs: _Outputs = []
    sizes: list[int] = []

    def note(layer: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            sizes.append(output.numel())
        if isinstance(layer, TAPPED):
            outputs.append((names[layer], output))

    with hooked(list(names), note), _context_of_pass(module, X):
        logits = module(X.clone())
    check_logits(module, logits, X)
    return logits, outputs, sum(sizes)


def _last_layer(module: nn.Module, outputs: _Outputs, logits: torch.Tensor) -> str:
    """Name of the linear layer whose unchanged output, or a view of all of it, is the logits."""
    for name, output in reversed(outputs):
        same = output.data_ptr() == logits.data_ptr() and output.numel() == logits.numel()
        if same and not output._version and isinstance(module.get_submodule(name), nn.Linear):
            return name
    return ""


def own_parameters(module: nn.Module, layer: str) -> tuple[str, ...]:
    """Names of a layer's parameters; none if one is frozen, shared or parametrised."""
    own = {id(p): p for p in module.get_submodule(layer).parameters()} if layer else {}
    names = tuple(n for n, p in module.named_parameters(remove_duplicate=False) if id(p) in own)
    is_own = all(name in (f"{layer}.weight", f"{layer}.bias") for name in names)
    return names if is_own and all(p.requires_grad for p in own.values()) else ()


def is_plain_linear(module: nn.Module, layer: str) -> bool:
    """Whether a layer is an nn.Linear, and no subclass, with trainable parameters of its own."""
    return bool(own_parameters(module, layer)) and type(module.get_submodule(layer)) is nn.Linear


def _attributes(module: nn.Module) -> list[tuple[str, int]]:
    """Names and identities of all attributes and buffers; a pass that sets one changes them."""
    parts = [{**vars(part), **part._buffers} for part in module.modules()]
    return [(name, id(value)) for part in parts for name, value in part.items()]


def _context_of_pass(module: nn.Module, X: torch.Tensor) -> AbstractContextManager[None]:
    shape, name = tuple(X.shape[1:]), qualified_name(module)
    context = f"the module {name} was given examples of shape {shape} and type {X.dtype}"
    if len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] not in (1, 3, 4):
        context += "; convolutions need channels first: X.transpose(0, 3, 1, 2), or permute"
    return add_error_context(context)


def check_logits(module: nn.Module, logits: Any, X: torch.Tensor) -> None:
    """Raise a ValueError unless a module returned floats (n, d) with d >= 2, no probabilities."""
    name, is_tensor = type(module).__name__, isinstance(logits, torch.Tensor)
    shape = tuple(logits.shape) if is_tensor else ()
    if len(shape) != 2 or shape[0] != len(X) or shape[1] < 2 or not logits.is_floating_point():
        valid = f"logits, floats of shape ({len(X)}, n_classes >= 2)"
        got = f"{logits.dtype} of shape {shape}" if is_tensor else type(logits).__name__
        raise ValueError(f"the module {name} must return {valid}; it returned {got}")
    logits = logits.detach().float()
    sums = logits.sum(dim=1)
    sums_to_1 = torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    # Logits that are the same for all rows may be any numbers, such as 0 and 1.
    if sums_to_1 and bool((logits >= 0).all() and (logits != logits[:1]).any()):
        raise ValueError(f"the module {name} returns probabilities; remove its own softmax")


def _why_functional(module: nn.Module, X: torch.Tensor, sampler: str) -> str:
    """Why the functional sampler perturbs the module; "" if gram does."""
    if sampler == "functional":
        return "sampler='functional' was given"
    if gram_layers(module) and X.is_floating_point():
        return ""
    why = (
        "gram needs an MLP, or an nn.Sequential of nn.Linear, elementwise layers, nn.BatchNorm1d "
        "and a first nn.Flatten. The last layer must be nn.Linear, no layer with weights may occur "
        "twice, none before the first nn.Linear may draw random numbers, and X must hold floats"
    )
    if has_hooks(module):
        why = "it has hooks, which the gram sampler would not call"
    if sampler == "gram":
        raise ValueError(
            f"sampler='gram' cannot perturb the module {type(module).__name__}: {why}; use "
            "sampler='functional' or 'auto'"
        )
    return why


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
        f"The paper's terms are slow here: perturbed copies of the module {name} are computed one "
        f"after the other, because {vmap_fails}. Coherence alone perturbs nothing and is not slow"
    )
    return False


def _pass_two_networks(module: nn.Module, X: torch.Tensor, by_vmap: bool) -> None:
    """A forward and a backward pass of the functional sampler, whose errors are raised."""
    # torch.utils.checkpoint would compute a layer again in the backward pass, when the perturbed
    # parameters are no longer in the module.
    with torch.autograd.graph.disable_saved_tensors_hooks(
        "switch off activation checkpointing (torch.utils.checkpoint) in the module"
    ):
        functional_logits(
            module, X, 2, 1.0, StepRandom(0, X.device), by_vmap=by_vmap
        ).sum().backward()
