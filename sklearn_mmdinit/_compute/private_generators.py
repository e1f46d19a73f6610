"""PyTorch's global generators, seeded for a while and then as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

__all__ = ["seeded_generators"]


@contextmanager
def seeded_generators(seed: int, gpus: Sequence[int] = ()) -> Iterator[None]:
    """Let whatever draws from the global generators draw by a seed, and leave no trace.

    Parameters
    ----------
    seed : int
        Of the CPU's generator and of those of `gpus`.
    gpus : sequence of int, default=()
        Indices of CUDA devices. The generators of others are left alone, which
        :func:`torch.manual_seed` would seed for good.
    """
    with torch.random.fork_rng(devices=list(gpus)):
        torch.default_generator.manual_seed(seed)
        for index in gpus:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield
