"""Other starts of a network: random labels, LSUV, principal components, autoencoder."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.utils import gen_batches
from torch import nn

from sklearn_mmdinit import MLP, MLPClassifier, NetClassifier, Theta0

Arrays = dict[str, np.ndarray]
"""Weights (n_out, n_in) and biases (n_out,) by the names that a Theta0 has."""


def weight_name(layer: int) -> str:
    """Name of a layer's weights, which count from 0."""
    return f"linears.{layer}.weight"


def bias_name(layer: int) -> str:
    return f"linears.{layer}.bias"


def fresh_theta0(classifier: NetClassifier, n_features: int, n_classes: int) -> Theta0:
    """What ``classifier.fit``, starting from nothing, begins with on rows of so many features."""
    # Fresh weights depend on the seed and the shapes alone, so rows of zeros do.
    unmoved = clone(classifier).set_params(max_iter=0, validation_split=None, warm_start_from=None)
    X = np.zeros((n_classes, n_features), dtype=np.float32)
    theta0: Theta0 = unmoved.fit(X, np.arange(n_classes)).theta0_
    return theta0


def take_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    """One step down the gradient of a loss; its value before."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return float(loss.detach())


def epochs(
    X: np.ndarray, batch_size: int, n_epochs: int, seed: int
) -> Iterator[Iterator[tuple[torch.Tensor, torch.Generator]]]:
    """Epochs over rows X, each of mini-batches in an order of its own and what else may draw."""
    for number in range(n_epochs):
        seed_of_epoch = np.random.SeedSequence([seed, number]).generate_state(1)[0]
        generator = torch.Generator().manual_seed(int(seed_of_epoch))
        order = torch.randperm(len(X), generator=generator).numpy()
        yield (
            (torch.from_numpy(X[order[batch]].astype(np.float32)), generator)
            for batch in gen_batches(len(X), batch_size)
        )


# Random labels (Pondenkandath et al., arXiv:1811.01640), the paper's baseline "R.label"


@dataclass(eq=False, repr=False)
class RandomLabels(BaseEstimator):  # type: ignore[misc]
    """Trains a perceptron on labels drawn uniformly anew for each mini-batch.

    Optimizer, epochs and selection are those of MMDInitializer: ``theta0_`` is what the parameters
    are at the end of the window with the lowest mean loss, ``best_loss_``.
    """

    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    n_classes: int = 2
    init: str = "xavier"
    module: Any = MLP  # its class, which takes these three
    learning_rate_init: float = 2e-4
    batch_size: int = 32
    max_iter: int = 5
    window: int = 100
    device: str = "cpu"
    random_state: int = 0

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        own = {"hidden_layer_sizes": self.hidden_layer_sizes, "init": self.init}
        params: dict[str, Any] = {f"module__{name}": value for name, value in own.items()}
        classifier = NetClassifier(self.module, random_state=self.random_state, **params)
        fresh = fresh_theta0(classifier, X.shape[1], self.n_classes)
        device = "cpu" if self.device == "auto" else self.device
        module = self.module(X.shape[1], n_classes=self.n_classes, **own).to(device)
        module.load_state_dict({n: torch.tensor(array) for n, array in fresh.arrays.items()})
        optimizer = torch.optim.Adam(module.parameters(), self.learning_rate_init, fused=True)
        losses: list[float] = []
        self.theta0_, self.best_loss_ = fresh, math.inf
        for mini_batches in epochs(X, self.batch_size, self.max_iter, self.random_state):
            for rows, generator in mini_batches:
                if len(rows) < self.batch_size:
                    continue
                labels = torch.randint(self.n_classes, (len(rows),), generator=generator)
                logits = module(rows.to(device))
                loss = nn.functional.cross_entropy(logits, labels.to(device))
                losses.append(take_step(optimizer, loss))
                if len(losses) % self.window:
                    continue
                mean = float(np.mean(losses[-self.window :]))
                if mean < self.best_loss_:
                    arrays = {
                        n: array.cpu().numpy().copy() for n, array in module.state_dict().items()
                    }
                    self.theta0_, self.best_loss_ = Theta0(fresh.architecture, arrays), mean
        self.n_iter_ = self.max_iter
        return self


# Layer-sequential unit-variance weights (Mishkin and Matas, ICLR 2016, arXiv:1511.06422)


def orthonormal(n_out: int, n_in: int, rng: np.random.Generator) -> np.ndarray:
    """A uniformly random (n_out, n_in) with orthonormal rows, or columns where they are fewer."""
    q, r = np.linalg.qr(rng.normal(size=(max(n_out, n_in), min(n_out, n_in))))
    q = q * np.sign(np.diag(r))  # the signs, which LAPACK chooses, are undone
    return q.T if n_out < n_in else q


def lsuv_arrays(
    X: np.ndarray, widths: Sequence[int], rng: np.random.Generator, *, batch_size: int = 256
) -> Arrays:
    """Weights of a ReLU network of such widths whose layers have outputs of variance 1.

    Orthonormal weights, then one layer after the other is scaled until its outputs on a mini-batch
    of rows X (n, widths[0]), before the activation, have variance 1. Biases are 0, so one division
    is exact: the loop of the paper has nothing left to do.
    """
    rows = rng.choice(len(X), size=min(batch_size, len(X)), replace=False)
    layer_input = X[rows].astype(np.float64)
    arrays: Arrays = {}
    for layer, (n_in, n_out) in enumerate(pairwise(widths)):
        weight = orthonormal(n_out, n_in, rng)
        # Over rows and units together, as in the paper.
        weight = weight / float((layer_input @ weight.T).std())
        arrays[weight_name(layer)] = weight.astype(np.float32)
        arrays[bias_name(layer)] = np.zeros(n_out, dtype=np.float32)
        layer_input = np.maximum(layer_input @ weight.T, 0.0)
    return arrays


# A first layer of principal components: after ReLU a pair of units keeps all of its component


def components_of(X: np.ndarray, n_units: int) -> np.ndarray:
    """Leading principal components of rows X, as rows, for a layer of twice as many units."""
    n_components = min((n_units + 1) // 2, *X.shape)
    return PCA(n_components, svd_solver="covariance_eigh").fit(X).components_


def with_components(fresh: Arrays, components: np.ndarray) -> Arrays:
    """Fresh arrays whose first layer has orthonormal rows, each twice, once with a minus.

    The weights together keep their variance, so that a fine-tuning made for those fits. Units
    beyond twice the number of components stay as they are, and so do all other layers.
    """
    weight = fresh[weight_name(0)].astype(np.float64)
    pairs = np.stack([components, -components], axis=1).reshape(-1, components.shape[1])
    pairs = pairs[: len(weight)]
    # Orthonormal rows have mean square 1 / n_features.
    pairs = pairs * np.sqrt(np.mean(weight**2) * components.shape[1])
    weight[: len(pairs)] = pairs
    return fresh | {weight_name(0): weight.astype(np.float32)}


# A denoising autoencoder (Vincent et al., JMLR 2010) whose encoder is the paper's network


def _chain(weights: Sequence[torch.Tensor], *, linear_output: bool) -> nn.Sequential:
    """Linear layers of these weights and no biases, ReLU between them, and after the last one."""
    layers: list[nn.Module] = []
    for weight in weights:
        # By way of "meta": nn.Linear's own initialisation would draw from the global generator.
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta").to_empty(device="cpu")
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.zero_()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if linear_output else layers))


def with_encoder(fresh: Theta0, encoder: Any) -> Theta0:
    """Fresh weights, of which a chain of all hidden layers takes the place."""
    arrays = dict(fresh.arrays)
    for number, layer in enumerate(encoder[::2]):
        arrays[weight_name(number)] = layer.weight.detach().numpy().copy()
        arrays[bias_name(number)] = layer.bias.detach().numpy().copy()
    return Theta0(fresh.architecture, arrays)


@dataclass(eq=False, repr=False)
class DenoisingAutoencoder(BaseEstimator):  # type: ignore[misc]
    """Learns the hidden layers of a network by undoing noise; the last layer stays fresh.

    min E ||g(h(corrupt(x))) - x||^2 / n_features by Adam, the decoder g having the widths of the
    encoder h in reverse; each entry is 0, the mean of scaled rows, with probability
    ``corruption_level``. Every draw follows from ``random_state`` and the number of the epoch.
    ``theta0_`` is of the last epoch, ``best_loss_`` the lowest mean loss of any.
    """

    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    n_classes: int = 2
    # Twenty epochs take minutes, as the pre-training with coherence does. The noise is chosen on
    # eight tasks of run 4 at N = 5 and 20. Mean gain over scratch after five epochs: masking 0.25,
    # 0.5, 0.75 and 0.9: +0.2, +1.8, +3.6, +3.8; Gaussian of std 0.5: -2.6. After twenty: 0.5: +2.5,
    # 0.75: +4.1.
    corruption_level: float = 0.75
    learning_rate_init: float = 1e-3
    batch_size: int = 128
    max_iter: int = 20
    random_state: int = 0
    verbose: int = 0

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        classifier = MLPClassifier(self.hidden_layer_sizes, random_state=self.random_state)
        fresh = fresh_theta0(classifier, X.shape[1], self.n_classes)
        # Xavier's law is symmetric in the two widths, so the decoder is fresh too where it
        # begins as the encoder's transpose: the usual tied start, no longer tied later.
        layers = range(len(self.hidden_layer_sizes))
        weights = [torch.from_numpy(fresh.arrays[weight_name(i)].copy()) for i in layers]
        decoder = _chain([weight.T for weight in reversed(weights)], linear_output=True)
        network = nn.Sequential(_chain(weights, linear_output=False), decoder)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate_init)
        self.loss_curve_: list[float] = []
        all_epochs = epochs(X, self.batch_size, self.max_iter, self.random_state)
        for number, mini_batches in enumerate(all_epochs):
            total = 0.0
            for rows, generator in mini_batches:
                kept = torch.rand(rows.shape, generator=generator) >= self.corruption_level
                loss = nn.functional.mse_loss(network(rows * kept), rows)
                total += take_step(optimizer, loss) * len(rows)
            self.loss_curve_.append(total / len(X))
            if self.verbose:
                print(f"epoch {number + 1}/{self.max_iter}: loss {total / len(X):.4f}", flush=True)
        self.n_iter_, self.best_loss_ = self.max_iter, min(self.loss_curve_)
        self.encoder_ = network[0]
        self.theta0_ = with_encoder(fresh, self.encoder_)
        return self


def hidden(theta0: Theta0, X: np.ndarray) -> np.ndarray:
    """Activations (n, width) of the last hidden layer of a ReLU perceptron."""
    for weight, bias in zip(theta0.coefs[:-1], theta0.intercepts[:-1], strict=True):
        X = np.maximum(X @ weight + bias, 0.0)
    return X
