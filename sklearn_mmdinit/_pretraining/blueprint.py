"""How networks are made of theta0, and theta0 of them: the only place that knows their kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from .._compute import in_portions, team
from .._network import (
    MLP,
    Architecture,
    ModuleArchitecture,
    Theta0,
    module_from_theta0,
    random_theta0,
    theta0_from_module,
)

__all__ = ["Blueprint", "Network", "PerceptronBlueprint"]


class Network(Protocol):
    """What an optimiser needs to know of a network."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is learned."""

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """The same with names."""


class Blueprint(Protocol):
    """Makes networks of one kind and shape."""

    @property
    def architecture(self) -> Architecture | ModuleArchitecture:
        """Their description."""

    def fresh(self) -> Theta0:
        """The weights to start pre-training from."""

    def module(self, theta0: Theta0) -> nn.Module:
        """A module of its own that starts at theta0."""

    def network(self, theta0: Theta0, device: str | torch.device) -> Any:
        """A network that starts at theta0, ready to be trained."""

    def theta0(self, network: Any) -> Theta0:
        """The parameters of a network."""

    def threads(self, n_rows: int, device: str | torch.device) -> AbstractContextManager[None]:
        """How threads divide the work while so many rows go through a network at a time."""

    def examples(self, X: np.ndarray) -> torch.Tensor:
        """Rows as a network takes them, on the CPU."""

    def hidden(self, theta0: Theta0, X: np.ndarray, device: str | torch.device) -> np.ndarray:
        """Inputs (n, width) of the last layer at theta0."""

    def hidden_width(self, theta0: Theta0) -> int:
        """How many there are."""


@dataclass(frozen=True)
class PerceptronBlueprint:
    """Makes multi-layer perceptrons.

    Parameters
    ----------
    architecture : Architecture
        Their shape.
    init : {"xavier", "he"}
        Random weights to start from.
    seed : int
        Of these weights.
    """

    architecture: Architecture
    init: str
    seed: int

    def fresh(self) -> Theta0:
        """Fresh random weights."""
        # A generator of its own: weights must not share numbers with the perturbations.
        sequence = np.random.SeedSequence(self.seed, spawn_key=(2,))
        generator = torch.Generator().manual_seed(int(sequence.generate_state(1)[0]))
        return random_theta0(self.architecture, self.init, generator)

    def module(self, theta0: Theta0) -> MLP:
        """A perceptron of its own that starts at theta0."""
        return module_from_theta0(theta0)

    def network(self, theta0: Theta0, device: str | torch.device) -> MLP:
        """The same in training mode, on a device."""
        return module_from_theta0(theta0, device).train()

    def theta0(self, network: MLP) -> Theta0:
        """The parameters of a perceptron."""
        return theta0_from_module(network)

    def threads(self, n_rows: int, device: str | torch.device) -> AbstractContextManager[None]:
        """A team that shares perturbed networks, where that is worth it."""
        return team(self.architecture.widths, n_rows, device)

    def examples(self, X: np.ndarray) -> torch.Tensor:
        """Rows in single precision."""
        return torch.from_numpy(X.astype(np.float32))

    def hidden(self, theta0: Theta0, X: np.ndarray, device: str | torch.device) -> np.ndarray:
        """Activations of the last hidden layer at theta0."""
        module = module_from_theta0(theta0, device).eval()
        return in_portions(lambda rows: module.hidden(self.examples(rows).to(device)), X)

    def hidden_width(self, theta0: Theta0) -> int:
        """Width of the last hidden layer."""
        return self.architecture.widths[-2]
