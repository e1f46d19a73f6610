"""The objective of the paper's baseline: labels that mean nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._compute import StepRandom
from .._network import MLP

__all__ = ["RandomLabelObjective"]


@dataclass(frozen=True)
class RandomLabelObjective:
    """Cross entropy with labels drawn anew for every mini-batch (Pondenkandath et al., 2018)."""

    term_names = ("loss",)

    def rows_a_step(self, n_rows: int) -> int:
        """Rows that go through a network in a step on a mini-batch of so many."""
        return n_rows

    def __call__(self, module: MLP, X: torch.Tensor, random: StepRandom) -> torch.Tensor:
        """The loss, a tensor of shape (1,)."""
        labels = random.labels(len(X), module.architecture.n_classes)
        return torch.nn.functional.cross_entropy(module(X), labels).unsqueeze(0)
