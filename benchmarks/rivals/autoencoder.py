"""A denoising autoencoder (Vincent et al., JMLR 2010) whose encoder is the paper's network.

The encoder is the network without its last layer, the decoder its mirror image with a linear
output. They learn together to give back the rows X from corrupted ones, by the mean squared
error: min E ||g(h(corrupt(x))) - x||^2 / n_features.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from rivals.corruption import CORRUPTIONS
from rivals.fresh import Arrays, fresh_arrays, weight_name
from sklearn_mmdinit import Architecture, MLPClassifier, Theta0

__all__ = ["DenoisingAutoencoder"]


def relu_chain(widths: Sequence[int], *, linear_output: bool) -> nn.Sequential:
    """Linear layers with ReLU between them, and after the last one unless it is linear."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        # By way of "meta": nn.Linear's own initialisation would draw from the global generator.
        layers += [nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu"), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if linear_output else layers))


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


class DenoisingAutoencoder(BaseEstimator):  # type: ignore[misc]
    """Learns the hidden layers of a network by undoing noise; the last layer stays fresh.

    As for the package's initializers, ``fit`` is ``max_iter`` calls of ``partial_fit``, a pass
    each; every draw follows from ``random_state`` and the number of the pass.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int
        The encoder's widths; the decoder has them in reverse.
    n_classes : int
        Outputs of the network that will start here.
    corruption : {"masking", "gaussian"}
        Key of :data:`~rivals.corruption.CORRUPTIONS`.
    corruption_level : float
        Share of masked entries, or std of the noise.
    learning_rate_init : float
        Adam's, constant.
    batch_size : int
        Rows a step.
    max_iter : int
        Passes over the rows.
    random_state : int
        Of weights, order and noise.
    verbose : int
        1 prints a line a pass.

    Attributes
    ----------
    theta0_ : Theta0
        The encoder, and the fresh last layer.
    loss_curve_ : list of float
        Mean loss of each pass, while it ran.
    best_loss_ : float
        The lowest of them; ``theta0_`` is of the last pass nevertheless.
    n_iter_ : int
        Passes made.
    """

    loss_curve_: list[float]
    _state: tuple[nn.Sequential, torch.optim.Adam]
    _fresh: Arrays

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] = (392, 392, 392),
        n_classes: int = 2,
        corruption: str = "masking",
        corruption_level: float = 0.75,
        learning_rate_init: float = 1e-3,
        batch_size: int = 128,
        max_iter: int = 20,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.n_classes = n_classes
        self.corruption = corruption
        self.corruption_level = corruption_level
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: np.ndarray, y: Any = None) -> DenoisingAutoencoder:
        """Learn from unlabelled rows X (n, n_features), from the beginning."""
        self.n_iter_ = 0
        for _ in range(self.max_iter):
            self.partial_fit(X)
        return self

    def partial_fit(self, X: np.ndarray, y: Any = None) -> DenoisingAutoencoder:
        """One more pass over rows X (n, n_features).

        Raises
        ------
        ValueError
            If the corruption is unknown, or the loss is no longer finite.
        """
        if self.corruption not in CORRUPTIONS:
            valid = sorted(CORRUPTIONS)
            raise ValueError(f"corruption must be one of {valid}, got {self.corruption!r}")
        passes = getattr(self, "n_iter_", 0)
        # A pass that is cut short leaves no trace: it works on a copy.
        state = copy.deepcopy(self._state) if passes else self._begin(X.shape[1])
        loss = self._pass(X, *state, torch.Generator().manual_seed(self._seed(passes)))
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss of pass {passes} is {loss}; lower learning_rate_init="
                f"{self.learning_rate_init}"
            )
        self._state = state
        self.loss_curve_ = [*(self.loss_curve_ if passes else []), loss]
        self.best_loss_ = min(self.loss_curve_)
        self.n_iter_ = passes + 1
        self.theta0_ = self._theta0(state[0][0])
        if self.verbose:
            print(f"pass {self.n_iter_}/{self.max_iter}: loss {loss:.4f}", flush=True)
        return self

    def _seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self.random_state, number]).generate_state(1)[0])

    def _begin(self, n_features: int) -> tuple[nn.Sequential, torch.optim.Adam]:
        """Encoder and decoder with fresh Xavier weights, and their optimiser."""
        self._fresh = self._fresh_network(n_features)
        widths = (n_features, *self.hidden_layer_sizes)
        encoder = relu_chain(widths, linear_output=False)
        decoder = relu_chain(widths[::-1], linear_output=True)
        # Xavier's law is symmetric in the two widths, so the decoder is fresh too where it
        # begins as the encoder's transpose: the usual tied start, no longer tied later.
        weights = [torch.from_numpy(self._fresh[weight_name(i)]) for i in range(len(widths) - 1)]
        with torch.no_grad():
            for layer, weight in zip(linear_layers(encoder), weights, strict=True):
                layer.weight.copy_(weight)
                layer.bias.zero_()
            for layer, weight in zip(linear_layers(decoder), weights[::-1], strict=True):
                layer.weight.copy_(weight.T)
                layer.bias.zero_()
        network = nn.Sequential(encoder, decoder)
        return network, torch.optim.Adam(network.parameters(), lr=self.learning_rate_init)

    def _fresh_network(self, n_features: int) -> Arrays:
        classifier = MLPClassifier(
            tuple(self.hidden_layer_sizes),
            warm_start_from=None,
            device="cpu",
            random_state=self.random_state,
        )
        return fresh_arrays(classifier, n_features, range(self.n_classes))

    def _pass(
        self,
        X: np.ndarray,
        network: nn.Sequential,
        optimizer: torch.optim.Adam,
        generator: torch.Generator,
    ) -> float:
        """Train on all rows once; the mean loss of the steps."""
        corrupt = CORRUPTIONS[self.corruption]
        order = torch.randperm(len(X), generator=generator).numpy()
        total = 0.0
        for start in range(0, len(X), self.batch_size):
            rows = torch.from_numpy(X[order[start : start + self.batch_size]].astype(np.float32))
            noisy = corrupt(rows, self.corruption_level, generator)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(noisy), rows)
            torch.autograd.backward(loss)
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        return total / len(X)

    def _theta0(self, encoder: nn.Module) -> Theta0:
        arrays = {name: array.copy() for name, array in self._fresh.items()}
        for number, layer in enumerate(linear_layers(encoder)):
            arrays[weight_name(number)] = layer.weight.detach().numpy().copy()
            arrays[f"linears.{number}.bias"] = layer.bias.detach().numpy().copy()
        n_features = arrays[weight_name(0)].shape[1]
        sizes = tuple(self.hidden_layer_sizes)
        return Theta0(Architecture(n_features, sizes, self.n_classes), arrays)
