"""Random labels (Pondenkandath et al., arXiv:1811.01640), the paper's baseline "R.label"."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from sklearn_mmdinit import MLP, NetClassifier, Theta0


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
    verbose: int = 0  # it shows nothing

    def _fresh(self, n_features: int) -> Theta0:
        """The weights that NetClassifier begins with; they depend on seed and shapes alone."""
        classifier = NetClassifier(
            self.module,
            max_iter=0,
            validation_split=None,
            random_state=self.random_state,
            module__hidden_layer_sizes=self.hidden_layer_sizes,
            module__init=self.init,
        )
        X = np.zeros((self.n_classes, n_features), dtype=np.float32)
        return classifier.fit(X, np.arange(self.n_classes)).theta0_

    def _batches(self, X: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Whole mini-batches of every epoch in an order of its own, with random labels."""
        for number in range(self.max_iter):
            seed = np.random.SeedSequence([self.random_state, number]).generate_state(1)[0]
            generator = torch.Generator().manual_seed(int(seed))
            order = torch.randperm(len(X), generator=generator).numpy()
            for start in range(0, len(X) - self.batch_size + 1, self.batch_size):
                rows = X[order[start : start + self.batch_size]].astype(np.float32)
                labels = torch.randint(self.n_classes, (len(rows),), generator=generator)
                yield torch.from_numpy(rows), labels

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        fresh = self._fresh(X.shape[1])
        device = "cpu" if self.device == "auto" else self.device
        module = self.module(X.shape[1], self.hidden_layer_sizes, self.n_classes, init=self.init)
        module.load_state_dict({n: torch.tensor(array) for n, array in fresh.arrays.items()})
        module.to(device)
        optimizer = torch.optim.Adam(module.parameters(), self.learning_rate_init, fused=True)
        losses: list[float] = []
        self.theta0_, self.best_loss_ = fresh, math.inf
        for rows, labels in self._batches(X):
            loss = nn.functional.cross_entropy(module(rows.to(device)), labels.to(device))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(float(loss.detach()))
            if len(losses) % self.window:
                continue
            mean = float(np.mean(losses[-self.window :]))
            if mean < self.best_loss_:
                arrays = {n: a.cpu().numpy().copy() for n, a in module.state_dict().items()}
                self.theta0_, self.best_loss_ = Theta0(fresh.architecture, arrays), mean
        self.n_iter_ = self.max_iter
        return self
