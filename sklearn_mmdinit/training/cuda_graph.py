"""Records steps on a GPU as one CUDA graph, because launching single operations takes too long."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .._base.random_streams import StepRandom

# Steps that are launched operation by operation. In the first ones PyTorch's libraries and Adam
# set themselves up; the last one is watched.
_BY_OPERATIONS = 3


class _OnHost(TorchDispatchMode):
    """Records whether an operation uses a tensor of the host."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = (t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor))
        self.seen |= any(tensor.device.type == "cpu" for tensor in tensors)
        return result


class RecordedStep:
    """A step that is launched operation by operation at first, and then as one CUDA graph.

    `step` takes a mini-batch and the source of its draws, and returns a tensor. It must do the same
    operations each time. It is recorded only if it never waits for the device and computes nothing
    on the host, because a recording leaves out such work.
    """

    def __init__(
        self,
        step: Callable[[torch.Tensor, StepRandom], torch.Tensor],
        seed: int,
        device: torch.device,
    ) -> None:
        self._step = step
        self._random = StepRandom(seed, device)
        # The default stream cannot be recorded.
        self._stream = torch.cuda.Stream(device)
        self._n_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        """Take the step of this number. The next call overwrites the returned tensor."""
        current = torch.cuda.current_stream(batch.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._run(batch, number)
        current.wait_stream(self._stream)
        return result

    def _run(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        self._random.at(number)
        if self._graph is not None and self._kind == (batch.shape, batch.dtype):
            self._batch.copy_(batch)
            self._graph.replay()
            return self._result
        self._n_calls += 1
        if self._n_calls != _BY_OPERATIONS:
            return self._step(batch, self._random)
        result, on_device = self._watched(batch)
        if on_device:
            self._record(batch)
        return result

    def _watched(self, batch: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """The result of a step, and whether it neither waited for the device nor used the host."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            caught.clear()  # the setting itself warns
            try:
                with _OnHost() as host:
                    result = self._step(batch, self._random)
            finally:
                torch.cuda.set_sync_debug_mode(before)
        others = [warning for warning in caught if "synchronizing" not in str(warning.message)]
        for other in others:
            warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        return result, len(others) == len(caught) and not host.seen

    def _record(self, batch: torch.Tensor) -> None:
        self._batch, self._kind = batch.clone(), (batch.shape, batch.dtype)
        try:
            graph = torch.cuda.CUDAGraph()
            for generator in self._random.generators:
                graph.register_generator_state(generator)
            # Other threads may use the device meanwhile.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                self._result = self._step(self._batch, self._random)
        except Exception:
            # The step cannot be recorded: memory may not suffice, or the step restores a
            # generator's state. If the step itself is wrong, the next one raises an error. The old
            # generators may still belong to the failed recording, so new ones replace them.
            self._random = StepRandom(self._random.seed, self._random.device)
        else:
            self._graph = graph
