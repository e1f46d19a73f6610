"""A module at theta0, ready to be trained: its logits, hidden activations and Jacobians."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from .._base.threads import Buffers, in_parts, team, worthwhile_threads
from ..theta0 import Architecture
from . import hooks
from .layers import layer_type_of, perturbed_type_of
from .trace import Trace

# Rows that one thread takes through a network at a time: enough for products at full rate.
_ROWS_A_PART = 256
# The same of the Jacobians, where each goes through once a class, and forth and back twice.
ROWS_OF_JACOBIANS = 16
# What a module keeps of the functions that are called beside its own.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Added to squared norms under a root, whose slope at 0 is infinite.
_TINY = 1e-12


@dataclass(frozen=True)
class Network:
    """A module on a device, in the mode of pre-training, and what is known of it."""

    module: nn.Module  # with theta0 as its parameters
    architecture: Architecture  # its description
    trace: Trace  # what one pass of it has shown
    # Why its perturbed copies have parameters of their own each; empty: they need not.
    why_functional: str = ""
    one_by_one: bool = False  # whether these pass one after the other, beyond torch.func.vmap
    buffers: Buffers = field(default_factory=Buffers)
    plans: dict[Hashable, Any] = field(default_factory=dict)  # how copies are drawn, by their sizes

    @property
    def in_threads(self) -> bool:
        """Whether threads share copies of it, each passing through alone: where that is faster.

        Convolutions are large enough for PyTorch's own threads.
        """
        return self._is_plain and all(call.n_positions == 1 for call in self.trace.calls)

    @property
    def _is_plain(self) -> bool:
        """Whether a pass does nothing but compute, the same way each time, as far as is known."""
        hooked = any(getattr(part, hooks) for part in self.module.modules() for hooks in _HOOKS)
        hooked |= any(parameter._backward_hooks for parameter in self.module.parameters())
        return not (self.trace.remembers or self.trace.reads or self.why_functional or hooked)

    @property
    def repeats(self) -> bool:
        """Whether a step does the same operations each time, and moves no generator back."""
        return self._is_plain and all(own.n_kept == own.n_parts for own in self.plans.values())

    def team(self, n_rows: int, device: str | torch.device) -> AbstractContextManager[None]:
        """How threads divide the work while so many rows go through it at a time."""
        if self.why_functional:
            return nullcontext()  # nothing is known of what is large
        largest = 0  # product of an example
        for call in self.trace.calls:
            own = self.module.get_submodule(call.layer).parameters(recurse=False)
            largest = max(largest, call.n_positions * sum(p.numel() for p in own))
        if not self.in_threads:
            return worthwhile_threads(n_rows * largest)  # PyTorch's own, within each operation
        return team(n_rows * largest, device)

    def logits(self, X: torch.Tensor) -> torch.Tensor:
        """Logits (B, d) of a mini-batch."""
        logits: torch.Tensor = self.module(X.clone() if self.trace.writes else X)
        return logits

    @property
    def n_last_biases(self) -> float:
        """Biases of the last linear layer that are perturbed; infinity where none is."""
        last: Any = self.module.get_submodule(self.architecture.last_layer)
        learned = last.bias is not None and last.bias.requires_grad
        return last.out_features if learned else math.inf

    def hidden(self, X: torch.Tensor) -> torch.Tensor:
        """Inputs (B, n) of the last linear layer, a part of the rows on each thread of a team."""
        name = self.architecture.last_layer
        if not name:
            linear = [n for n, layer in self.module.named_modules() if isinstance(layer, nn.Linear)]
            raise ValueError(
                f"the last linear layer of {self.architecture.module} is not known, since none "
                f"returns the logits as they are: take a softmax at the end out, or name the layer "
                f"in hidden_layer, one of {linear}"
            )
        last: Any = self.module.get_submodule(name)
        here = threading.local()  # what a thread's own pass has seen

        def seen(layer: nn.Module, H: torch.Tensor) -> Any:
            here.seen = H
            return hooks.own_output(layer, H)

        parts = X.split(_ROWS_A_PART if self._is_divided(X) else len(X))

        def part(number: int, _: None) -> torch.Tensor:
            here.seen = None
            rows = parts[number]
            self.logits(rows)
            found = here.seen
            if found is None or found.shape[:-1] != rows.shape[:1]:
                shape = None if found is None else tuple(found.shape)
                raise ValueError(
                    f"the layer {name!r} must see one row for each of {len(rows)} examples, and "
                    f"sees an input of shape {shape}; name another one in hidden_layer"
                )
            return found

        with hooks.step_by_step(), hooks.replaced({last: seen}):
            return in_parts(part, len(parts), list(self.module.parameters()))

    def jacobian_norms(self, X: torch.Tensor) -> torch.Tensor:
        """Norms (B, d, L) of the rows of the Jacobians of the logits, unperturbed.

        With respect to the input and to the output of each known layer before the last one, which
        is a pre-activation (after a normalisation, where one follows at once).
        """
        n_classes = self.architecture.n_classes
        statistics = self.batch_statistics(X)
        parts = X.split(ROWS_OF_JACOBIANS if self._is_divided(X) else len(X))

        def part(number: int, tapped: Any) -> torch.Tensor:
            rows, differentiable = parts[number], torch.is_grad_enabled()
            with torch.enable_grad():
                # Rows do not depend on each other: each once a class gives all slopes at once.
                logits, taps = tapped(rows.repeat(n_classes, *[1] * (X.ndim - 1)))
                of_class = torch.eye(n_classes, dtype=logits.dtype, device=logits.device)
                of_class = of_class.repeat_interleave(len(rows), dim=0)
                taps = taps if logits.requires_grad else []
                inputs = [tap for tap, _ in taps]
                slopes = inputs and torch.autograd.grad(
                    logits, inputs, of_class, create_graph=differentiable, allow_unused=True
                )
                norms = [
                    # (d B, ...), or more rows than one for each example.
                    own.movedim(axis, 0).reshape(n_classes, len(rows), -1).square().sum(-1)
                    for own, (_, axis) in zip(slopes, taps, strict=True)
                    if own is not None
                ]
            if not norms:
                raise ValueError(
                    f"the logits of {self.architecture.module} depend on no input, those of "
                    "integers aside, and on no known layer before the last one: there is no "
                    "Jacobian for the detachment term; set detachment_weight=0"
                )
            return torch.stack(norms, dim=-1).add(_TINY).sqrt().transpose(0, 1)

        learned, around = list(self.module.parameters()), partial(self._tapping, statistics)
        found = in_parts(part, len(parts), learned, around=around)
        # 1 where a class is on no way from an output, and others are: a head of another class.
        felt = (found.detach() > 1.001 * math.sqrt(_TINY)).any(dim=0)
        return torch.where(felt.any(dim=0) & ~felt, torch.ones_like(found), found)

    def batch_statistics(self, X: torch.Tensor) -> dict[nn.Module, list[hooks.Statistics]]:
        """Of each batch normalisation, call by call: constants. Its running ones see this pass."""
        norms = hooks.batch_norms(self.module)
        statistics: dict[nn.Module, list[hooks.Statistics]] = {norm: [] for norm in norms}

        def collect(norm: nn.Module, H: torch.Tensor) -> Any:
            statistics[norm].append(hooks.statistics_of(H.contiguous(), 1))
            return hooks.own_output(norm, H)

        collecting = hooks.replaced(dict.fromkeys(statistics, collect))
        with hooks.tracked(self.module) as any_other, collecting:
            if statistics or any_other:
                with torch.enable_grad(), hooks.step_by_step():
                    self.logits(X)
        return statistics

    @contextmanager
    def _tapping(self, statistics: dict[nn.Module, list[hooks.Statistics]]) -> Iterator[Any]:
        """Tap the outputs of the layers before the last one for a while, in any number of threads.

        Gives a function that takes rows and returns their logits, and what was tapped, each with
        its axis of examples beside it.
        """
        here = threading.local()  # what a thread's own pass has seen

        def hand_on(output: torch.Tensor) -> torch.Tensor:
            if not output.requires_grad:  # of a layer that is not learned, before any that is
                output = output.detach().requires_grad_()
            here.taps.append(output)
            # A copy goes on, so that what works in place leaves the tap as it is.
            here.last = output.clone()
            return here.last

        def tap(layer: nn.Module, H: Any) -> torch.Tensor:
            return hand_on(hooks.own_output(layer, H))

        def normalise(norm: Any, H: torch.Tensor) -> torch.Tensor:
            if norm in here.given:
                output = hooks.normalised(norm, H.contiguous(), next(here.given[norm]))
            else:
                output = hooks.own_output(norm, H)
            if H is not here.last:
                return output
            here.taps.pop()
            return hand_on(output)

        def rectify(layer: nn.Module, H: torch.Tensor) -> torch.Tensor:
            # The same, without a second derivative: autograd's is a whole pass of zeros.
            return H.masked_fill(H <= 0, 0.0)

        def tapped(X: torch.Tensor) -> tuple[torch.Tensor, list[tuple[torch.Tensor, int]]]:
            here.taps, here.last = [], None
            here.given = {norm: iter(own) for norm, own in statistics.items()}
            if X.is_floating_point():
                X.requires_grad_()
            logits = self.logits(X)
            found = [(X, 0)] if X.requires_grad else []
            last = self.trace.last if self.trace.last >= 0 else len(self.trace.calls) - 1
            for number, (call, output) in enumerate(zip(self.trace.calls, here.taps, strict=False)):
                # Some of the rows alone, as an expert sees them, say nothing of all.
                if number != last and call.axis >= 0 and output.shape[call.axis] % len(X) == 0:
                    found.append((output, call.axis))
            return logits, found

        forwards: dict[nn.Module, Any] = {
            layer: tap if perturbed_type_of(layer) else normalise
            for layer in self.module.modules()
            if layer_type_of(layer) is not None
        }
        forwards |= {part: rectify for part in self.module.modules() if type(part) is nn.ReLU}
        with hooks.unfused(), hooks.untracked(self.module), hooks.replaced(forwards):
            yield tapped

    def _is_divided(self, X: torch.Tensor) -> bool:
        """Whether rows go through the module a part of them at a time, on threads of their own."""
        # Batch normalisation needs all of them at once.
        return self.in_threads and X.device.type == "cpu" and not hooks.batch_norms(self.module)
