"""Steps on a GPU: one is recorded, and repeated without the host."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from .._compute import StepRandom
from .._network import MLP
from .steps import Objective, Steps

__all__ = ["CUDARecorder", "RecordedSteps", "Recorder", "steps_on"]

# Steps taken before one is recorded: they allocate what stays, such as the optimiser's state.
_N_WARM_UP = 3


class Recorder(Protocol):
    """Records what a function does on a device, to do it again."""

    def turn(self) -> AbstractContextManager[None]:
        """Where the recorded work and all that it needs are to be done."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """A callable that repeats the function's work on the same memory; not done yet."""


class RecordedSteps(Steps):
    """Steps of which one is recorded and repeated: the host only says which one is next.

    A step is some hundred small operations, each of which costs the host more time than a
    GPU. Nothing in a step may depend on the host's knowledge of a value on the device, and all
    mini-batches must have the same shape.
    """

    def __init__(
        self,
        module: Any,
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
    module: Any,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    random: StepRandom,
) -> Steps:
    """Steps as they are best taken on a device."""
    # What else than a perceptron does may wait for a value, which cannot be recorded.
    if device.type == "cuda" and isinstance(module, MLP):
        return RecordedSteps(module, objective, optimizer, random, CUDARecorder(random))
    return Steps(module, objective, optimizer, random)
