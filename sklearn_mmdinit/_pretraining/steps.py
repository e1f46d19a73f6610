"""Optimisation steps in a row, with no wait for the device between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from .._compute import StepRandom

__all__ = ["Objective", "Steps"]


class Objective(Protocol):
    """Loss terms of a mini-batch; the first one is minimised."""

    @property
    def term_names(self) -> tuple[str, ...]:
        """Name of each term."""

    def rows_a_step(self, n_rows: int) -> int:
        """Rows that go through a network in a step on a mini-batch of so many."""

    def __call__(self, module: Any, X: torch.Tensor, random: StepRandom) -> torch.Tensor:
        """Terms, a tensor of shape (len(term_names),)."""


class Steps:
    """Steps of an optimiser on an objective.

    Parameters
    ----------
    module : MLP or ModuleNetwork
        The network to train.
    objective : Objective
        What to minimise.
    optimizer : torch.optim.Optimizer
        Over the module's parameters.
    random : StepRandom
        Source of the draws.
    """

    def __init__(
        self,
        module: Any,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        random: StepRandom,
    ) -> None:
        self._module = module
        self._objective = objective
        self._optimizer = optimizer
        self._random = random
        self._sums = torch.zeros(
            len(objective.term_names), dtype=torch.float32, device=random.device
        )

    def run(
        self,
        batches: torch.Tensor,
        first_step: int,
        advance: Callable[[], Any],
        rates: Sequence[float] | None = None,
    ) -> np.ndarray:
        """Take one step a mini-batch.

        Parameters
        ----------
        batches : Tensor of shape (n_steps, B, ...)
            On the device.
        first_step : int
            Number of the first step: the draws follow from it.
        advance : callable
            Called after each step.
        rates : sequence of float, default=None
            Learning rate of each step; None: the optimiser's own.

        Returns
        -------
        ndarray of shape (n_terms,)
            Sums of the objective's terms, float64.
        """
        with self._turn():
            self._sums.zero_()
            for offset, batch in enumerate(batches):
                self._random.at(first_step + offset)
                if rates is not None:
                    self._set_rate(rates[offset])
                self._take(batch)
                advance()
            return self._sums.cpu().numpy().astype(np.float64)

    def _set_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                # A recorded step reads the rate from the device's own memory.
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def _turn(self) -> AbstractContextManager[None]:
        """Where the steps of a run are to be taken."""
        return nullcontext()

    def _take(self, batch: torch.Tensor) -> None:
        terms = self._objective(self._module, batch, self._random)
        # Kept, not freed: on a CPU their memory would come back as pages to be zeroed, and
        # on a GPU a recorded step writes to the same place again.
        self._optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(terms[0])
        self._optimizer.step()
        self._sums += terms.detach()
