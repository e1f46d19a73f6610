"""What one look at a module shows: how networks are made of a theta0, and theta0 of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from .._base.environment import in_portions, with_gradients
from .._base.module_factory import ModuleFactory
from ..theta0 import Architecture, Theta0, arrays_of, put_arrays_, qualified_name
from .functional import reason_for_functional
from .hooks import pretraining_mode
from .passes import Network
from .trace import Trace, as_examples, chain_of, describe, layout_of, takes_integers, trace

# Examples that a module is looked at with, and one fewer; batch normalisation needs two.
_N_EXAMPLES = 4


@dataclass(frozen=True)
class Profile:
    """What one look at a module has shown: from here networks are made of a theta0 and back."""

    source: ModuleFactory  # where fresh copies of the module come from
    architecture: Architecture  # its description
    trace: Trace  # what one pass of it has shown
    why_functional: str = ""  # as of :class:`Network`
    one_by_one: bool = False  # as well
    integers: bool = False  # whether it takes whole numbers as such
    layout: torch.memory_format = torch.contiguous_format  # order of images in memory

    def fresh(self) -> Theta0:
        """The weights that the module comes with."""
        return Theta0(self.architecture, arrays_of(self.source.build()))

    def module(self, theta0: Theta0) -> nn.Module:
        """A module of its own that starts at theta0, in the mode that it comes in."""
        module = self.source.build().cpu()
        put_arrays_(module, theta0.arrays)
        return module

    def network(self, theta0: Theta0, device: str | torch.device) -> Network:
        """A network that starts at theta0, in single precision and the mode of pre-training."""
        # First to single precision: a module in half precision would round theta0.
        module: Any = self.source.build().float()
        put_arrays_(module, theta0.arrays)
        module.to(device)
        if self.layout != torch.contiguous_format:
            module.to(memory_format=self.layout)
        pretraining_mode(module)
        own = self.why_functional, self.one_by_one
        return Network(module, self.architecture, self.trace, *own)

    def theta0(self, network: Network) -> Theta0:
        """The parameters of a network."""
        return Theta0(self.architecture, arrays_of(network.module))

    def examples(self, X: np.ndarray) -> torch.Tensor:
        """Rows as the module takes them, on the CPU."""
        return as_examples(X, self.integers)

    def hidden(self, theta0: Theta0, X: np.ndarray, device: str | torch.device) -> np.ndarray:
        """Inputs (n, width) of the last linear layer at theta0."""
        network = self.network(theta0, device)
        network.module.eval()
        H = in_portions(lambda rows: network.hidden(self.examples(rows).to(device)), X)
        if not np.isfinite(H).all():
            raise ValueError("hidden activations of X are not finite: give it on theta0's scale")
        return H


@with_gradients()
def look_at(
    source: ModuleFactory, X: np.ndarray, sampler: str = "auto", hidden_layer: str | None = None
) -> Profile:
    """Look at a module and a few rows of X (n, ...)."""
    module = source.build().float().cpu()
    description = describe(source, module, X.shape[1:])
    integers = takes_integers(module)
    pretraining_mode(module)
    examples = as_examples(X[np.arange(_N_EXAMPLES) % len(X)], integers)
    found = trace(module, examples)
    last_layer = _last_layer(module, found, hidden_layer)
    if found.last < 0 and last_layer:
        order = [call.layer for call in found.calls]
        found = replace(found, last=len(order) - 1 - order[::-1].index(last_layer))
    chain, n_classes = chain_of(module, found, examples), found.n_classes
    architecture = replace(description, n_classes=n_classes, last_layer=last_layer, chain=chain)
    why = reason_for_functional(Network(module, architecture, found), examples, sampler)
    # Under torch.func.vmap some layers know no other order.
    layout = torch.contiguous_format if why[0] else layout_of(module, examples)
    return Profile(source, architecture, found, *why, integers, layout)


def _last_layer(module: nn.Module, found: Trace, told: str | None) -> str:
    """Name of the linear layer that gives the logits; empty where there is none."""
    called = [call.layer for call in found.calls]
    linear = {name for name in called if isinstance(module.get_submodule(name), nn.Linear)}
    if told is None:
        last = called[found.last] if found.last >= 0 else ""
        return last if last in linear else ""
    if told not in linear:
        valid = f"a linear layer of {qualified_name(module)}, one of {sorted(linear)}"
        raise ValueError(f"hidden_layer must be {valid}, got {told!r}")
    return told
