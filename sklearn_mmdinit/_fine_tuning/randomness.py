"""Randomness of one training, which goes on where the last epoch left it.

States are kept between calls, so that training epoch by epoch draws what training in one go
draws. Both classes can be pickled with the net that uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .._compute import seeded_generators

__all__ = ["Orders", "PrivateRandomness"]


class Orders:
    """Orders of rows, one after the other.

    Parameters
    ----------
    seed : int
        Of all of them.
    """

    def __init__(self, seed: int) -> None:
        # On the CPU, whatever PyTorch's default device is.
        self._state = torch.Generator("cpu").manual_seed(seed).get_state()

    def next(self, n_rows: int) -> torch.Tensor:
        """A permutation of ``range(n_rows)``, int64."""
        generator = torch.Generator("cpu")
        generator.set_state(self._state)
        order = torch.randperm(n_rows, generator=generator, device="cpu")
        self._state = generator.get_state()
        return order


class PrivateRandomness:
    """PyTorch's global generators, seeded for a while and then left as they were.

    Our own draws come from generators of their own. Only what a caller brought, such as a
    callback or a DataLoader, can draw from the global ones; where there is nothing of the kind
    they are not touched at all, for saving and restoring them is not safe among threads.

    Parameters
    ----------
    seed : int
        Of the global generators.
    needed : bool
        Whether anything may draw from them.
    """

    def __init__(self, seed: int, needed: bool) -> None:
        self._seed = seed
        self._needed = needed
        self._states: list[torch.Tensor] = []

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """Draw privately on the CPU and on a device, from where the last time ended."""
        if not self._needed:
            yield
            return
        gpus = [_index(device)] if device.type == "cuda" else []
        with seeded_generators(self._seed, gpus):
            if self._states:
                torch.set_rng_state(self._states[0])
            if self._states[1:] and gpus:
                torch.cuda.set_rng_state(self._states[1], gpus[0])
            yield
            self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
