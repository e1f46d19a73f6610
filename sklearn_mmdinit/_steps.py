"""Optimisation steps in a row, with no wait for the device between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from ._compute import StepRandom
from ._network import MLP

__all__ = ["CUDARecorder", "Objective", "RecordedSteps", "Recorder", "Steps", "steps_on"]

# Steps taken before one is recorded: they allocate what stays, such as the optimiser's state.
_N_WARM_UP = 3


class Objective(Protocol):
    """Loss terms of a mini-batch; the first one is minimised."""

    @property
    def term_names(self) -> tuple[str, ...]:
        """Name of each term."""

    @property
    def n_networks(self) -> int:
        """Networks that each mini-batch goes through."""

    def __call__(self, module: MLP, X: torch.Tensor, random: StepRandom) -> torch.Tensor:
        """Terms, a tensor of shape (len(term_names),)."""


class Recorder(Protocol):
    """Records what a function does on a device, to do it again."""

    def turn(self) -> AbstractContextManager[None]:
        """Where the recorded work and all that it needs are to be done."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """A callable that repeats the function's work on the same memory; not done yet."""


class Steps:
    """Steps of an optimiser on an objective.

    Parameters
    ----------
    module : MLP
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
        module: MLP,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        random: StepRandom,
    ) -> None:
        self._module = module
        self._objective = objective
        self._optimizer = optimizer
        self._random = random
        self._sums = torch.zeros(len(objective.term_names), device=random.device)

    def run(self, batches: torch.Tensor, first_step: int, advance: Callable[[], Any]) -> np.ndarray:
        """Take one step a mini-batch.

        Parameters
        ----------
        batches : Tensor of shape (n_steps, B, n_features)
            On the device.
        first_step : int
            Number of the first step: the draws follow from it.
        advance : callable
            Called after each step.

        Returns
        -------
        ndarray of shape (n_terms,)
            Sums of the objective's terms, float64.
        """
        with self._turn():
            self._sums.zero_()
            for offset, batch in enumerate(batches):
                self._random.at(first_step + offset)
                self._take(batch)
                advance()
            return self._sums.cpu().numpy().astype(np.float64)

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


class RecordedSteps(Steps):
    """Steps of which one is recorded and repeated: the host only says which one is next.

    A step is some hundred small operations, each of which costs the host more time than a
    GPU. Nothing in a step may depend on the host's knowledge of a value on the device, and all
    mini-batches must have the same shape.
    """

    def __init__(
        self,
        module: MLP,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        random: StepRandom,
        recorder: Recorder,
    ) -> None:
        super().__init__(module, objective, optimizer, random)
        self._recorder = recorder
        self._batch: torch.Tensor | None = None
        self._repeat: Callable[[], None] | None = None
        self._n_taken = 0

    def _turn(self) -> AbstractContextManager[None]:
        return self._recorder.turn()

    def _take(self, batch: torch.Tensor) -> None:
        if self._batch is None:
            self._batch = torch.empty_like(batch)
        self._batch.copy_(batch)
        if self._n_taken < _N_WARM_UP:
            self._n_taken += 1
            super()._take(self._batch)
            return
        if self._repeat is None:
            self._repeat = self._recorded(self._batch)
        self._repeat()

    def _recorded(self, batch: torch.Tensor) -> Callable[[], None]:
        """The step on the given memory, recorded; as it comes where that fails."""
        take = super()._take
        try:
            return self._recorder.record(lambda: take(batch))
        except RuntimeError as error:
            # What is recorded is not done: nothing was lost but speed.
            warnings.warn(
                f"A step cannot be recorded on {batch.device} ({error}); steps are taken one "
                "operation at a time, which is slower.",
                RuntimeWarning,
                stacklevel=2,
            )
            return lambda: take(batch)


class CUDARecorder:
    """Records work as a CUDA graph.

    Parameters
    ----------
    random : StepRandom
        Its draws are made anew by every repetition, from the seed set before it.
    """

    def __init__(self, random: StepRandom) -> None:
        self._random = random
        # The default stream cannot be recorded.
        self._stream = torch.cuda.Stream(random.device)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A stream of its own, in order with the caller's before and after."""
        outside = torch.cuda.current_stream(self._random.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            yield
        outside.wait_stream(self._stream)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """The function's work as a graph."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._random.generator)
        with torch.cuda.graph(graph, stream=self._stream):
            function()
        replay: Callable[[], None] = graph.replay
        return replay


def steps_on(
    device: torch.device,
    module: MLP,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    random: StepRandom,
) -> Steps:
    """Steps as they are best taken on a device."""
    if device.type == "cuda":
        return RecordedSteps(module, objective, optimizer, random, CUDARecorder(random))
    return Steps(module, objective, optimizer, random)
