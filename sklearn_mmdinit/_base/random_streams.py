"""Random draws of pre-training: each is a function of a seed and of numbers like the step's."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch.utils.checkpoint import checkpoint


class Purpose(IntEnum):
    """What draws are for: each purpose has an independent stream of one seed."""

    STEP = 0  # the networks of a step
    EPOCH = 1  # the order of rows in an epoch
    WEIGHTS = 2  # fresh weights
    WALK = 3  # the random walks of a step
    AUGMENTATION = 4  # the augmentation of a step
    LOADER = 5  # a mini-batch of an epoch, made by a loader


def _sequence(seed: int, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=key)


def generator_of(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """NumPy's generator for a purpose; `key` holds the numbers of the step or epoch."""
    return np.random.default_rng(_sequence(seed, purpose, *key))


def seed_of(seed: int, purpose: Purpose, *key: int) -> int:
    """A seed for a generator that is not NumPy's; `key` holds the numbers of the step or epoch."""
    return int(_sequence(seed, purpose, *key).generate_state(1)[0])


def seeds_of(random_state: Any, n: int) -> list[int]:
    """The next n seeds that scikit-learn's ``random_state`` gives."""
    draws = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n)
    return [int(seed) for seed in draws]


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order in which an epoch visits `n` rows, an int64 array of shape (n,)."""
    return generator_of(seed, Purpose.EPOCH, epoch).permutation(n)


class StepRandom:
    """Draws the random numbers of one step at a time."""

    def __init__(self, seed: int, device: str | torch.device = "cpu") -> None:
        self.seed = seed
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device)
        self._parts: list[StepRandom] = []
        self.at(0)

    def at(self, step: int) -> StepRandom:
        """Move to the draws of a step; earlier draws have no influence."""
        self._step_sequence = _sequence(self.seed, Purpose.STEP, step)
        words = self._step_sequence.generate_state(1 + len(self._parts)).tolist()
        for generator, word in zip(self.generators, words, strict=True):
            generator.manual_seed(word)
        return self

    @property
    def generators(self) -> list[torch.Generator]:
        """All generators, those of the parts included."""
        return [self.generator, *(part.generator for part in self._parts)]

    def split(self, n_parts: int) -> list[StepRandom]:
        """Independent draws of this step for `n_parts` parts of the work."""
        if n_parts == 1:
            return [self]
        # Seeds in use: one for this object and one for each part made so far.
        n_used = 1 + len(self._parts)
        for word in self._step_sequence.generate_state(1 + n_parts)[n_used:].tolist():
            part = type(self)(self.seed, self.device)
            part.generator.manual_seed(word)
            self._parts.append(part)
        return self._parts[:n_parts]

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normals of the given shape, float32."""
        numbers = torch.empty(shape, device=self.device, dtype=torch.float32)
        return numbers.normal_(generator=self.generator)

    def checkpointed(self, function: Callable[[], torch.Tensor]) -> torch.Tensor:
        """``function()``, computed again with the same draws for its gradient, to save memory."""
        state = self.generator.get_state()

        def repeated(on_device: torch.Tensor) -> torch.Tensor:
            self.generator.set_state(state)
            return function()

        # `checkpoint` restores the global generators of the devices of its arguments.
        on_device = torch.empty(0, device=self.device)
        result: torch.Tensor = checkpoint(repeated, on_device, use_reentrant=False)
        return result

    def simplex(self, n_samples: int, n_classes: int) -> torch.Tensor:
        """Uniform draws on the simplex, (n_samples, n_classes): normalized Exp(1)."""
        draws = torch.empty((n_samples, n_classes), device=self.device, dtype=torch.float32)
        draws.exponential_(generator=self.generator)
        return draws / draws.sum(dim=1, keepdim=True)
