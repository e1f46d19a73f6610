"""Randomness of pre-training: every draw is a function of (seed, step) alone.

Reseeding at every step costs microseconds and makes an interrupted run resume exactly:
nothing of a generator's state has to be saved.
"""

from __future__ import annotations

import numpy as np
import torch

__all__ = ["StepRandom", "augmentation_generator", "permutation", "walk_generator"]

# Names of the independent streams of one seed; 2 is that of initial weights.
_STEP, _EPOCH, _WALK, _AUGMENTATION = 0, 1, 3, 4


def permutation(seed: int, epoch: int, n: int) -> np.ndarray:
    """The order in which pass `epoch` visits `n` rows, an int64 array of shape (n,)."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_EPOCH, epoch))
    return np.random.default_rng(sequence).permutation(n)


def walk_generator(seed: int, step: int) -> np.random.Generator:
    """What the walks of one step are drawn with, on the host."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_WALK, step)))


def augmentation_generator(seed: int, step: int) -> np.random.Generator:
    """What the rows of one step are changed with, on the host."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_AUGMENTATION, step)))


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

    Attributes
    ----------
    generator : torch.Generator
        What makes the draws.
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
        self.generator = torch.Generator(self.device)
        self._parts: list[StepRandom] = []
        self.at(0)

    def at(self, step: int) -> StepRandom:
        """Move to the draws of one step; what was drawn before has no influence."""
        self._sequence = np.random.SeedSequence(self.seed, spawn_key=(_STEP, step))
        self.generator.manual_seed(int(self._sequence.generate_state(1)[0]))
        return self

    def split(self, n_parts: int) -> list[StepRandom]:
        """Sources of this step for `n_parts` parts of the work, each for a thread of its own.

        PyTorch's generator is serial, and the draw is the dearest part of a step after the
        matrix products: each thread draws what it needs, and has it in its cache.
        """
        if n_parts == 1:
            return [self]
        while len(self._parts) < n_parts:
            self._parts.append(StepRandom(self.seed, self.device, self.dtype))
        # The first word is this source's own.
        words = self._sequence.generate_state(1 + n_parts)[1:]
        for part, word in zip(self._parts, words, strict=False):
            part.generator.manual_seed(int(word))
        return self._parts[:n_parts]

    def normal(self, *shape: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """Standard normals of the given shape, in `out` where it is given."""
        if out is None:
            out = torch.empty(shape, device=self.device, dtype=self.dtype)
        return out.normal_(generator=self.generator)

    def simplex(self, n_samples: int, n_classes: int) -> torch.Tensor:
        """Uniform draws on the simplex, (n_samples, n_classes): normalised Exp(1)."""
        shape = (n_samples, n_classes)
        draws = torch.empty(shape, device=self.device, dtype=self.dtype)
        draws.exponential_(generator=self.generator)
        return draws / draws.sum(dim=1, keepdim=True)

    def labels(self, n_samples: int, n_classes: int) -> torch.Tensor:
        """Uniform class indices, int64 of shape (n_samples,)."""
        return torch.randint(n_classes, (n_samples,), generator=self.generator, device=self.device)
