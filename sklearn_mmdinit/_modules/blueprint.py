"""A user's module as pre-training wants it: fresh weights, networks from theta0 and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from .._compute import in_portions, with_gradients
from .._network import ModuleArchitecture, Theta0, arrays_of, put_arrays_, qualified_name
from .chain import chain_of
from .description import as_examples, described, takes_integers
from .hooks import names_of, pretraining_mode
from .layout import layout_of, put_in_layout_
from .network import ModuleNetwork
from .registry import check_rules, layer_type_of
from .served import served
from .source import ModuleSource
from .trace import Trace, trace

__all__ = ["ModuleBlueprint", "blueprint_of"]

# Examples that a module is looked at with, and one fewer; batch normalisation needs two.
_N_EXAMPLES = 4


@dataclass(frozen=True)
class ModuleBlueprint:
    """Makes networks of a user's module. Made by :func:`blueprint_of`.

    Parameters
    ----------
    source : ModuleSource
        Where modules come from.
    architecture : ModuleArchitecture
        What they have in common.
    trace : Trace
        Of a pass of one.
    why_functional : str
        Why their copies are drawn by the functional sampler; empty where hooks serve.
    takes_integers : bool
        Whether whole numbers are handed on as such, and not as floats.
    layout : torch.memory_format, default=torch.contiguous_format
        Order of the numbers of weights and, from there on, of activations.
    known : frozenset of str, default=frozenset()
        Names of the layers whose types were known when it was made.
    """

    source: ModuleSource
    architecture: ModuleArchitecture
    trace: Trace
    why_functional: str
    takes_integers: bool
    layout: torch.memory_format = torch.contiguous_format
    known: frozenset[str] = frozenset()

    def fresh(self) -> Theta0:
        """The weights that the module comes with."""
        return Theta0(self.architecture, arrays_of(self.source.build()))

    def hidden_width(self, theta0: Theta0) -> int:
        """Inputs of the last linear layer."""
        width: int = theta0.arrays[f"{self.architecture.last_layer}.weight"].shape[1]
        return width

    def module(self, theta0: Theta0) -> nn.Module:
        """A module of its own that starts at theta0, in the mode that it comes in."""
        module = self.source.build().cpu()
        put_arrays_(module, theta0.arrays)
        return module

    def network(self, theta0: Theta0, device: str | torch.device) -> ModuleNetwork:
        """A network that starts at theta0, ready to be trained in single precision.

        Raises
        ------
        RuntimeError
            If a layer was known by :func:`register_layer` that is not known in this process.
        """
        # First to single precision: a module in half precision would round theta0.
        module = self.source.build().float()
        put_arrays_(module, theta0.arrays)
        module.to(device)
        if lost := sorted(self.known - _known_layers(module)):
            kind = type(module.get_submodule(lost[0])).__name__
            raise RuntimeError(
                f"the layer {lost[0]!r} was perturbed by a rule that register_layer made known, "
                f"and in this process there is none; call register_layer({kind}, ...) first, in "
                "each worker too"
            )
        if self.layout != torch.contiguous_format:
            put_in_layout_(module, self.layout)
        pretraining_mode(module)
        return ModuleNetwork(module, self.architecture, self.trace, self.why_functional)

    def theta0(self, network: ModuleNetwork) -> Theta0:
        """The parameters of a network."""
        return Theta0(self.architecture, arrays_of(network.module))

    @contextmanager
    def threads(self, n_rows: int, device: str | torch.device) -> Iterator[None]:
        """PyTorch's own threads: what a module does cannot be divided from outside."""
        yield

    def examples(self, X: np.ndarray) -> torch.Tensor:
        """Rows as the module takes them, on the CPU."""
        return as_examples(X, self.takes_integers)

    def hidden(self, theta0: Theta0, X: np.ndarray, device: str | torch.device) -> np.ndarray:
        """Inputs of the last linear layer at theta0, (n, width)."""
        network = self.network(theta0, device)
        network.module.eval()
        return in_portions(lambda rows: network.hidden(self.examples(rows).to(device)), X)


@with_gradients()
def blueprint_of(
    source: ModuleSource, X: np.ndarray, sampler: str = "auto", hidden_layer: str | None = None
) -> ModuleBlueprint:
    """Look at a module and a few examples.

    Parameters
    ----------
    source : ModuleSource
        Where the module comes from.
    X : ndarray of shape (n, ...)
        Examples.
    sampler : {"auto", "direct", "gram", "functional"}, default="auto"
        What is asked for.
    hidden_layer : str, default=None
        Name of the linear layer whose inputs are the hidden activations; None: the one that
        gives the logits, where there is one.

    Returns
    -------
    ModuleBlueprint

    Raises
    ------
    ValueError
        If the module does not return logits, has no such layer, or cannot be perturbed.
    """
    module = source.build().float().cpu()
    check_rules(module)
    description = described(source, module, X.shape[1:])
    integers = takes_integers(module)
    pretraining_mode(module)
    examples = as_examples(X[np.arange(_N_EXAMPLES) % len(X)], integers)
    found = trace(module, examples)
    last_layer = _last_layer(module, found, hidden_layer)
    if found.last < 0 and last_layer:
        order = [call.layer for call in found.calls]
        found = replace(found, last=len(order) - 1 - order[::-1].index(last_layer))
    architecture = replace(
        description,
        n_classes=found.n_classes,
        last_layer=last_layer,
        chain=chain_of(module, found, examples),
    )
    network = served(ModuleNetwork(module, architecture, found), examples, sampler)
    layout = layout_of(module, examples)
    known = _known_layers(module)
    why = network.why_functional
    return ModuleBlueprint(source, architecture, found, why, integers, layout, known)


def _known_layers(module: nn.Module) -> frozenset[str]:
    """Names of the layers whose types are known now."""
    named = names_of(module).items()
    return frozenset(name for layer, name in named if layer_type_of(layer) is not None)


def _last_layer(module: nn.Module, found: Trace, told: str | None) -> str:
    """Name of the linear layer that gives the logits; empty where there is none."""
    linear = [
        call.layer
        for call in found.calls
        if isinstance(module.get_submodule(call.layer), nn.Linear)
    ]
    if told is not None:
        if told not in linear:
            raise ValueError(
                f"hidden_layer must be the name of a linear layer that the module "
                f"{qualified_name(module)} calls, one of {sorted(set(linear))}, got {told!r}"
            )
        return told
    if found.last < 0 or found.calls[found.last].layer not in linear:
        return ""
    return found.calls[found.last].layer
