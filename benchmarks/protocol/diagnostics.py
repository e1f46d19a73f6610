"""What the paper counts around a network: degenerate softmax, dead neurons, predictions.

Perturbed networks are drawn as the library draws them in a step.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from sklearn_mmdinit._base.random_streams import StepRandom
from sklearn_mmdinit.networks.info import inspect_module, perturbed_logits

_SCALE = math.sqrt(0.5)


def prediction_samples(
    network: nn.Module,
    X: np.ndarray,
    n_perturbations: int,
    *,
    seed: int,
    perturbation_scale: float = _SCALE,
) -> np.ndarray:
    """Predictions (K, n, d) of K networks around a network, each for all rows X (n, ...)."""
    rows = torch.from_numpy(np.asarray(X, np.float32))
    info, random = inspect_module(network, rows), StepRandom(seed, rows.device)
    with torch.no_grad():
        logits = perturbed_logits(network, info, rows, n_perturbations, perturbation_scale, random)
    return np.asarray(logits.softmax(-1))


def _mini_batches(
    X: np.ndarray, n_batches: int, batch_size: int, seed: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Rows that are drawn at random, and a seed, for each mini-batch."""
    rng, n = np.random.default_rng(seed), min(batch_size, len(X))
    for _ in range(n_batches):
        yield X[rng.choice(len(X), size=n, replace=False)], int(rng.integers(2**31))


def degenerate_softmax_ratio(
    network: nn.Module,
    X: np.ndarray,
    *,
    seed: int,
    perturbation_scale: float = _SCALE,
    n_perturbations: int = 256,
    n_batches: int = 128,
    batch_size: int = 32,
) -> np.ndarray:
    """Share (n_batches,) of perturbed networks that use fewer than all classes on a mini-batch."""
    ratios = []
    for batch, of_batch in _mini_batches(X, n_batches, batch_size, seed):
        P = prediction_samples(
            network, batch, n_perturbations, seed=of_batch, perturbation_scale=perturbation_scale
        )
        used = (P.argmax(-1)[..., None] == np.arange(P.shape[-1])).any(axis=1)  # (K, d)
        ratios.append(float((~used).any(axis=1).mean()))
    return np.array(ratios)


def dead_neuron_ratio(
    network: nn.Module, X: np.ndarray, *, seed: int, n_batches: int = 128, batch_size: int = 32
) -> np.ndarray:
    """Share (n_batches, n_layers) of a ReLU layer's units that are 0 for all rows of a batch."""
    ratios: list[float] = []

    def count(layer: nn.Module, args: Any, output: torch.Tensor) -> None:
        ratios.append(float((output <= 0).all(dim=0).double().mean()))

    layers = [layer for layer in network.modules() if isinstance(layer, nn.ReLU)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        for batch, _ in _mini_batches(X, n_batches, batch_size, seed):
            network(torch.from_numpy(batch.astype(np.float32)))
    for hook in hooks:
        hook.remove()
    return np.reshape(ratios, (n_batches, -1))
