"""Predictions of K networks around theta0, a part of them at a time, by the sampler that serves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap

from .._base.random_streams import StepRandom
from .._base.threads import in_parts
from .._base.validation import warn_user
from .copies import Draw, PerturbedLayer, copies_drawn, gram_stds, perturbed_layers
from .gram import noise_factor
from .hooks import layer_named, moved, names_of, unfused, untracked
from .layers import parameter_stds
from .passes import Network

SAMPLERS = ("auto", "direct", "gram", "functional")

# Numbers of the widest layer's activations in a part that a thread works on alone: with what the
# layers before and after it need they fill a core's cache, and are enough for matrix products at
# full rate. The paper's step is divided into 12 by it; into 16 it takes 2 % longer.
_NUMBERS_IN_CACHE = 275_000
# Numbers, activations and perturbations, of a part whose every operation is shared by all threads:
# with smaller ones there are too many small operations, with larger ones each goes through memory
# afresh.
_NUMBERS_A_PART = 1 << 24
# The same on a GPU, where what counts is how many operations there are.
_NUMBERS_A_PART_OF_A_GPU = 1 << 27
# Numbers of all parts that are kept for their gradient; the others are computed twice. Noise is
# counted and not kept, so that this is 400 to 750 MiB in float32 of image networks.
_NUMBERS_KEPT = 1 << 28
# An output, its noise and their sum.
_TIMES_EACH_NUMBER = 3

# How far logits of a copy may be from those of the module alone, of their own size: rounding of
# sums in another order, and none of what a perturbation does.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Plan:
    """How copies of a network are drawn: settled with the first mini-batch of a size."""

    layers: Mapping[nn.Module, PerturbedLayer]  # empty where parameters are drawn, not layers
    n_parts: int  # one after the other; not by threads
    n_kept: int  # the first so many keep their graph, the others are computed twice


def perturbed_logits(
    network: Network,
    X: torch.Tensor,
    n_copies: int,
    scale: float,
    random: StepRandom,
    sampler: str = "auto",
) -> torch.Tensor:
    """Logits (K, B, d) of K networks around theta0 on one mini-batch X (B, ...).

    Differentiable by the network's parameters. Where "auto" has a choice between samplers, it goes
    by what costs less.
    """
    key = n_copies, scale, len(X), sampler, X.device
    if key not in network.plans:
        network.plans[key] = _plan(network, *key)
    plan: Plan = network.plans[key]
    functional, n_parts = not plan.layers, plan.n_parts
    bounds = [n_copies * i // n_parts for i in range(n_parts + 1)]
    sizes = [stop - start for start, stop in pairwise(bounds)]
    randoms = random.split(n_parts)
    again = plan.n_kept < n_parts
    states = [own.generator.get_state() for own in randoms if again]
    # One copy of the rows for all parts, but where a module works in place on its input.
    most = None if functional or network.trace.writes else _repeated(X, max(sizes))

    before = {} if most is None else _in_common(network, X, plan)
    pairs = [(mean, leaf) for mean, leaf, _ in before.values()]
    common = {name: (leaf, L) for name, (_, leaf, L) in before.items()}

    def around() -> AbstractContextManager[Any]:
        if functional:
            return nullcontext()
        return copies_drawn(network.module, plan.layers, network.buffers)

    def part(number: int, copied: Any) -> torch.Tensor:
        own, size = randoms[number], sizes[number]
        if again:
            own.generator.set_state(states[number])  # the second time it draws the same
        if functional:
            return _functional_logits(network, X, size, scale, own)
        rows = _repeated(X, size) if most is None else most[: size * len(X)]
        logits: torch.Tensor = copied(Draw(rows, size, own, number, common=common))
        return logits.view(size, len(X), -1)

    return in_parts(part, n_parts, list(network.module.parameters()), plan.n_kept, pairs, around)


def _in_common(
    network: Network, X: torch.Tensor, plan: Plan
) -> dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of linear layers that see the examples, by gram: outputs at theta0, a leaf, the noise's L."""
    found, first = {}, {call.layer for call in network.trace.calls if call.first}
    for module, own in plan.layers.items():
        layer: Any = module
        plain = type(layer).forward is nn.Linear.forward and X.dtype == torch.float32
        if own.by_gram and plain and own.name in first:
            rows = X.reshape(-1, layer.in_features)
            L = noise_factor(rows[None], *gram_stds(own))
            mean = nn.functional.linear(rows, layer.weight, layer.bias)
            leaf = mean.detach().requires_grad_(mean.requires_grad)
            found[own.name] = mean, leaf, L[0]
    return found


def _repeated(X: torch.Tensor, n_copies: int) -> torch.Tensor:
    """The rows once for each copy, (K B, ...)."""
    # A copy, even of one: a module may work in place on its input.
    rows = X.expand(n_copies, *X.shape).clone(memory_format=torch.contiguous_format)
    return rows.flatten(0, 1)


def _functional_logits(
    network: Network, X: torch.Tensor, n_copies: int, scale: float, random: StepRandom
) -> torch.Tensor:
    """Logits (K, B, d) of copies that have parameters of their own, at once where vmap can."""
    module = network.module
    parameters = dict(module.named_parameters())
    eps = {
        name: random.normal(n_copies, *parameters[name].shape).mul_(std)
        for name, std in parameter_stds(module, scale).items()
    }
    # Each place of a parameter once, and not its first name alone: where a layer has two names,
    # PyTorch's own tying would leave perturbed parameters in the module.
    first = {id(parameter): name for name, parameter in parameters.items()}
    places = {
        f"{layer_name}.{own}".removeprefix("."): first[id(parameter)]
        for layer, layer_name in names_of(module).items()
        for own, parameter in layer.named_parameters(recurse=False, remove_duplicate=False)
    }

    def one(eps: dict[str, torch.Tensor]) -> torch.Tensor:
        perturbed = {name: parameters[name] + noise for name, noise in eps.items()}
        named = {place: perturbed[name] for place, name in places.items() if name in perturbed}
        return functional_call(module, named, (X.clone(),), tie_weights=False)

    with unfused(), untracked(module):
        if network.one_by_one:
            each = ({name: own[k] for name, own in eps.items()} for k in range(n_copies))
            return torch.stack([one(own) for own in each])
        return vmap(one)(eps)


def _plan(
    network: Network, n_copies: int, scale: float, n_rows: int, sampler: str, device: torch.device
) -> Plan:
    module, trace = network.module, network.trace
    functional = sampler == "functional" or bool(network.why_functional)
    layers = {} if functional else perturbed_layers(module, trace, scale, sampler, n_rows)
    positions = {call.layer: call.n_positions for call in trace.calls}
    numbers, widest = 0, 1  # of a copy: in all, and of the largest array
    if functional:
        parameters = dict(module.named_parameters())
        numbers = sum(parameters[name].numel() for name in parameter_stds(module, 1.0))
    for layer, own in layers.items():
        if own.name in positions:
            n_here = n_rows * positions[own.name]
            direct = sum(p.numel() for p in layer.parameters(recurse=False))
            drawn = n_here**2 if own.by_gram else direct
            numbers += drawn
            n_out = len(getattr(layer, "weight", [()]))
            widest = max(widest, drawn, n_here * n_out)
    numbers += _TIMES_EACH_NUMBER * n_rows * trace.n_numbers
    if not network.in_threads or functional or device.type != "cpu":
        most = _NUMBERS_A_PART if device.type == "cpu" else _NUMBERS_A_PART_OF_A_GPU
        n_parts = min(math.ceil(n_copies * numbers / most), n_copies)
    else:
        n_parts = math.ceil(n_copies * widest / _NUMBERS_IN_CACHE)
        # Divisible among two or four threads.
        n_parts = min(4 * math.ceil(n_parts / 4), n_copies) if n_parts > 1 else 1
    n_kept = min(int(_NUMBERS_KEPT * n_parts / (n_copies * numbers)), n_parts)
    return Plan(layers, n_parts, n_kept)


def chosen_samplers(network: Network, sampler: str, n_rows: int) -> dict[str, str]:
    """How each layer is drawn for so many examples, by the layer's name."""
    if sampler == "functional" or network.why_functional:
        return dict.fromkeys(parameter_stds(network.module, 1.0), "functional")
    called = {call.layer for call in network.trace.calls}
    layers = perturbed_layers(network.module, network.trace, 1.0, sampler, n_rows).values()
    return {own.name: "gram" if own.by_gram else "direct" for own in layers if own.name in called}


def reason_for_functional(network: Network, X: torch.Tensor, sampler: str) -> tuple[str, bool]:
    """Why perturbed copies cannot be one pass of the module, or ""; and whether vmap fails too.

    A ValueError if no sampler can perturb the module, or the one that was asked for cannot.
    """
    name = network.architecture.module
    if not parameter_stds(network.module, 1.0):
        raise ValueError(f"the module {name} has no parameters to perturb that require a gradient")
    asked = sampler == "functional"
    reason = "it was asked for" if asked else _reason_against_copies(network, X)
    if reason is None:
        return "", False
    if sampler in ("direct", "gram"):
        raise ValueError(
            f"sampler={sampler!r} cannot perturb the module {name}: {reason}; use "
            "sampler='functional' or 'auto'"
        )
    refused = f"the functional sampler ({reason}) cannot perturb the module {name}"
    failures: list[Exception] = []
    with torch.enable_grad(), _saved_as_they_are(), layer_named(network.module) as called:
        # What a module draws or keeps would not be a function of the seed.
        slowly = [] if network.trace.remembers else [replace(network, one_by_one=True)]
        for tried in (network, *slowly):
            try:
                logits = _functional_logits(tried, X, 2, 1.0, StepRandom(0, X.device))
                break
            except Exception as error:
                failures, where = [*failures, error], called()
        else:
            words = dict.fromkeys(f"{type(error).__name__}: {error}" for error in failures)
            raise ValueError(
                f"{refused}: {where} fails under torch.func.vmap with "
                f"{' and without it with '.join(words)}"
            ) from failures[0]
    if failed := _reason_against_gradient(network, logits):
        raise ValueError(f"{refused}: {failed}")
    if tried.one_by_one:
        said = (
            f"copies of the module {name} are computed one after the other, which is slow: {where} "
            "is beyond torch.func.vmap"
        )
        warn_user(said)
    return reason, tried.one_by_one


def _reason_against_copies(network: Network, X: torch.Tensor) -> str | None:
    """Why perturbed copies cannot be one pass of the module; None where they can."""
    if away := network.trace.away:
        return f"the parameters {list(away)} act elsewhere than in the layers that are known"
    if reads := network.trace.reads:
        return f"{reads[0]} looks at values of a tensor, which mixes the copies"
    layers = perturbed_layers(network.module, network.trace, 1.0, "direct", len(X))
    drawn = copies_drawn(network.module, layers, network.buffers)
    with (
        torch.enable_grad(),
        _saved_as_they_are(),
        layer_named(network.module) as called,
        moved(network.module),
        drawn as copied,
    ):
        # A copy without noise, beside one that has some, computes what it does alone.
        for alone in (0, 1):
            mask = torch.ones(2, dtype=torch.float32, device=X.device)
            mask[alone] = 0.0
            try:
                plain, both = (
                    copied(Draw(_repeated(X, n), n, StepRandom(0, X.device), mask=own))
                    for n, own in ((1, mask[alone : alone + 1]), (2, mask))
                )
                difference = both.view(2, *plain.shape)[alone] - plain
            except Exception as error:
                return f"{called()} fails with {type(error).__name__}: {error}"
            size = float(plain.detach().abs().max()) + 1.0
            if not float(difference.detach().abs().max()) < _ROUNDING * size:
                return "its rows depend on each other, or another axis than the first counts them"
        return _reason_against_gradient(network, both)


def _reason_against_gradient(network: Network, logits: torch.Tensor) -> str | None:
    """Why copies cannot be differentiated; None where they can."""
    learned = [parameter for parameter in network.module.parameters() if parameter.requires_grad]
    if not logits.requires_grad:
        return "its logits depend on no parameter that requires a gradient"
    try:
        torch.autograd.grad(logits.sum(), learned, allow_unused=True)
    except Exception as error:
        message = str(error).partition("\n")[0]
        return f"its gradient fails with {type(error).__name__}: {message}"
    return None


def _saved_as_they_are() -> Any:
    """Refuse passes that compute again for their gradient: without the noise, and in silence."""
    why = "a layer must not be computed again for its gradient, as torch.utils.checkpoint does"
    return torch.autograd.graph.disable_saved_tensors_hooks(why)
