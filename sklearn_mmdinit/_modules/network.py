"""Any module as a network that pre-training can learn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._network import ModuleArchitecture
from .embedding_indices import embeddings_named
from .hooks import hooked, step_by_step, unfused, untracked
from .norms import Statistics, batch_norms, collecting, given
from .registry import layer_type_of
from .trace import Trace

__all__ = ["ModuleNetwork"]

# An output of a layer, and its axis that counts examples.
Tap = tuple[torch.Tensor, int]


@dataclass(frozen=True)
class ModuleNetwork:
    """A module, and what is known of it.

    Parameters
    ----------
    module : nn.Module
        In the mode of pre-training.
    architecture : ModuleArchitecture
        Its description.
    trace : Trace
        Of a pass of a module like it.
    why_functional : str, default=""
        Why its copies are drawn by the functional sampler; empty where hooks serve.
    """

    module: nn.Module
    architecture: ModuleArchitecture
    trace: Trace
    why_functional: str = ""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the module."""
        return self.module.parameters()

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """Those of the module, by their names in it."""
        return self.module.named_parameters()

    @property
    def n_last_biases(self) -> float:
        """Biases of the last linear layer that are perturbed; infinity where none is."""
        last: Any = self.module.get_submodule(self.architecture.last_layer)
        learned = last.bias is not None and last.bias.requires_grad
        return last.out_features if learned else math.inf

    def _logits(self, X: torch.Tensor) -> torch.Tensor:
        with embeddings_named(self.module):
            logits: torch.Tensor = self.module(X.clone())  # it may work in place on its input
        return logits

    def hidden(self, X: torch.Tensor) -> torch.Tensor:
        """Inputs (B, n) of the last linear layer.

        Raises
        ------
        ValueError
            If the layer is not known, or sees other rows than one for each example.
        """
        name = self.architecture.last_layer
        if not name:
            linear = [n for n, layer in self.module.named_modules() if isinstance(layer, nn.Linear)]
            raise ValueError(
                f"the last linear layer of {self.architecture.module} is not known, since none "
                f"returns the logits as they are: name it in hidden_layer, one of {linear}"
            )
        seen: list[torch.Tensor] = []
        last = self.module.get_submodule(name)
        with step_by_step(), hooked([(last, lambda layer, H, output: seen.append(H))]):
            self._logits(X)
        if not seen or seen[-1].shape[:-1] != X.shape[:1]:
            shape = tuple(seen[-1].shape) if seen else None
            raise ValueError(
                f"the layer {name!r} must see one row for each of {len(X)} examples, and sees an "
                f"input of shape {shape}; name another one in hidden_layer"
            )
        return seen[-1]

    def pre_activations(self, X: torch.Tensor) -> tuple[torch.Tensor, list[Tap]]:
        """Logits, and what the layers before the last one return on the way to them.

        Statistics of batch normalisation count as constants of the graph between the two, and
        not of the one that leads to the parameters. Where an output goes straight into a
        normalisation, the normalised one is taken: the input of what comes next.

        Parameters
        ----------
        X : Tensor of shape (B, ...)
            Mini-batch.

        Returns
        -------
        logits : Tensor of shape (B, n_classes)
        taps : list of (Tensor, int)
            With the axis that counts examples. The first one is the input, if it is not of
            integers; what is the same for all examples is left out.
        """
        norms = batch_norms(self.module)
        if not norms:
            return self._tapped(X, {})
        found: dict[nn.Module, list[Statistics]] = {norm: [] for norm in norms}
        # This pass is the one that the running statistics see.
        with step_by_step(), hooked([(norm, collecting(found[norm])) for norm in norms]):
            self._logits(X)
        with untracked(self.module):
            return self._tapped(X, found)

    def _tapped(
        self, X: torch.Tensor, statistics: dict[nn.Module, list[Statistics]]
    ) -> tuple[torch.Tensor, list[Tap]]:
        taps: list[torch.Tensor] = []
        handed_on: list[torch.Tensor] = []

        def tap(layer: nn.Module, H: Any, output: torch.Tensor) -> torch.Tensor:
            if not output.requires_grad:  # of a layer that is not learned, before any that is
                output = output.detach().requires_grad_()
            taps.append(output)
            # A copy goes on, so that what works in place leaves the tap as it is.
            handed_on.append(output.clone())
            return handed_on[-1]

        def replace(norm: nn.Module, H: Any, output: torch.Tensor) -> torch.Tensor | None:
            if not (handed_on and H is handed_on[-1]):
                return None
            taps.pop(), handed_on.pop()
            return tap(norm, H, output)

        types = {layer: layer_type_of(layer) for layer in self.module.modules()}
        hooks: list[Any] = [(norm, given(iter(own))) for norm, own in statistics.items()]
        hooks += [
            (layer, tap if known.stds(layer, 1.0) else replace)
            for layer, known in types.items()
            if known is not None
        ]
        if X.is_floating_point():
            X = X.detach().requires_grad_()
        with unfused(), hooked(hooks):
            logits = self._logits(X)
        found: list[Tap] = [(X, 0)] if X.requires_grad else []
        last = self.trace.last if self.trace.last >= 0 else len(self.trace.calls) - 1
        for number, (call, output) in enumerate(zip(self.trace.calls, taps, strict=False)):
            if number != last and call.axis >= 0:
                found.append((output, call.axis))
        return logits, found
