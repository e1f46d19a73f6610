"""Randomness of pre-training: every draw is a function of (seed, step) alone.

Reseeding at every step costs microseconds and makes an interrupted run resume exactly:
nothing of a generator's state has to be saved.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

__all__ = ["StepRandom", "permutation"]

# Large CPU draws are split into this many streams, whatever the number of threads, so that
# the numbers do not depend on the machine. PyTorch's CPU generator is serial: with two
# threads the draw, the dearest part of a step after the matrix products, takes half the time.
_N_STREAMS = 4
_MIN_SPLIT = 1 << 16

# Names of the independent streams of one seed.
_STEP, _EPOCH = 0, 1


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n_threads, thread_name_prefix="sklearn_mmdinit-normal")


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    # A process forked from this one has the pool but not its threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _fill_part(part: torch.Tensor, generator: torch.Generator) -> None:
    part.normal_(generator=generator)


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order in which pass `epoch` visits `n` rows, an int64 array of shape (n,)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_EPOCH, epoch))
    return np.random.default_rng(sequence).permutation(n)


class StepRandom:
    """Source of the draws of one step at a time.

    Parameters
    ----------
    seed : int
        Non-negative seed of the whole run.
    device : str or torch.device, default="cpu"
        Where draws are made.
    dtype : torch.dtype, default=torch.float32
        Of the draws.
    """

    def __init__(
        self,
        seed: int,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.seed = seed
        self.device = torch.device(device)
        self.dtype = dtype
        n_streams = _N_STREAMS if self.device.type == "cpu" else 1
        self._generators = [torch.Generator(self.device) for _ in range(n_streams)]
        self._block: torch.Tensor | None = None
        self._used = self._reserved = 0
        self.at(0)

    def at(self, step: int) -> StepRandom:
        """Move to the draws of one step; what was drawn before has no influence."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(_STEP, step))
        words = sequence.generate_state(len(self._generators), np.uint32)
        for generator, word in zip(self._generators, words, strict=True):
            generator.manual_seed(int(word))
        self._used = self._reserved = 0
        return self

    def reserve(self, n: int) -> None:
        """Draw the next `n` normals now, in one go, for later calls to hand out.

        Many threads draw at the start of a step; between matrix products their core would
        still be held by a worker of these that spins for its next task.
        """
        if self._block is None or len(self._block) < n:
            self._block = torch.empty(n, device=self.device, dtype=self.dtype)
        self._fill(self._block[:n])
        self._used, self._reserved = 0, n

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normals of the given shape; reserved ones are valid until the next reserve."""
        n = math.prod(shape)
        if self._block is not None and self._used + n <= self._reserved:
            self._used += n
            return self._block[self._used - n : self._used].view(shape)
        return self._fill(torch.empty(shape, device=self.device, dtype=self.dtype))

    def _fill(self, out: torch.Tensor) -> torch.Tensor:
        if self.device.type != "cpu" or out.numel() < _MIN_SPLIT:
            return out.normal_(generator=self._generators[0])
        parts = out.view(-1).chunk(_N_STREAMS)
        n_threads = min(torch.get_num_threads(), _N_STREAMS)
        run = map if n_threads == 1 else _pool(n_threads).map
        list(run(_fill_part, parts, self._generators))
        return out

    def simplex(self, n_samples: int, n_classes: int) -> torch.Tensor:
        """Uniform draws on the simplex, (n_samples, n_classes): normalised Exp(1)."""
        shape = (n_samples, n_classes)
        draws = torch.empty(shape, device=self.device, dtype=self.dtype)
        draws.exponential_(generator=self._generators[0])
        return draws / draws.sum(dim=1, keepdim=True)

    def labels(self, n_samples: int, n_classes: int) -> torch.Tensor:
        """Uniform class indices, int64 of shape (n_samples,)."""
        return torch.randint(
            n_classes, (n_samples,), generator=self._generators[0], device=self.device
        )
