r"""The paper's loss and coherence, :math:`L_{uni} + \lambda L_{sd} + \xi L_{iod} + \mu L_{coh}`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch

from .._compute import StepRandom, concatenated
from .._modules import ModuleNetwork
from .._network import ACTIVATIONS, MLP
from .coherence import coherence
from .mmd_objective import MMDObjective

__all__ = ["CoherentObjective"]

# Rows that one thread takes through the network at a time: enough for products at full rate.
_ROWS_A_PART = 128


@dataclass(frozen=True)
class CoherentObjective:
    """The paper's loss on a few of the inputs, and coherence on all.

    Coherence needs many inputs and no sampling, the paper's terms many samples for each input:
    a mini-batch serves both at about the same cost when a part of it serves the latter.

    Parameters
    ----------
    paper : MMDObjective or None
        The paper's terms; None leaves them out, and out of the history.
    n_rows : int
        How many of the first inputs go through the paper's terms.
    weight : float
        The weight mu of coherence.
    separation : float
        As in :func:`sklearn_mmdinit._objective.coherence.coherence`.
    """

    paper: MMDObjective | None
    n_rows: int
    weight: float
    separation: float

    @property
    def term_names(self) -> tuple[str, ...]:
        """Name of each term."""
        return (*(("loss",) if self.paper is None else self.paper.term_names), "coherence")

    def rows_a_step(self, n_rows: int) -> int:
        """Rows that go through a network in a step on a mini-batch of so many."""
        few = min(self.n_rows, n_rows)
        return n_rows + (0 if self.paper is None else self.paper.rows_a_step(few))

    def __call__(
        self, module: MLP | ModuleNetwork, X: torch.Tensor, random: StepRandom
    ) -> torch.Tensor:
        """The terms named by ``term_names``; the first is the loss.

        Parameters
        ----------
        module : MLP or ModuleNetwork
            The network at theta0.
        X : Tensor of shape (2 n, ...)
            The starts of n walks, then their ends in the same order.
        random : StepRandom
            Source of the paper's draws.

        Returns
        -------
        Tensor of shape (len(term_names),)
        """
        H = _hidden(module, X)
        own = coherence(H, module.n_last_biases, self.separation)
        if self.paper is None:
            return torch.stack((self.weight * own, own))
        terms = self.paper(module, X[: min(self.n_rows, len(X) // 2)], random)
        return torch.cat(((terms[0] + self.weight * own)[None], terms[1:], own[None]))


@singledispatch
def _hidden(module: Any, X: torch.Tensor) -> torch.Tensor:
    """Last hidden activations, a part of the rows on each thread."""
    if module.architecture.batch_norm or X.device.type != "cpu":
        # Batch normalisation needs all rows at once.
        return module.hidden(X)
    parts = X.split(_ROWS_A_PART)
    tensors = [t for linear in module.linear_layers[:-1] for t in (linear.weight, linear.bias)]

    function = ACTIVATIONS[module.architecture.activation].function

    def part(number: int, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        H = parts[number]
        for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
            H = function(torch.nn.functional.linear(H, weight, bias))
        return H

    return concatenated(part, len(parts), tensors)


@_hidden.register(ModuleNetwork)
def _module_hidden(module: ModuleNetwork, X: torch.Tensor) -> torch.Tensor:
    """Last hidden activations of any module: all rows at once."""
    return module.hidden(X)
