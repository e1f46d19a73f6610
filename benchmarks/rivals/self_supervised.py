"""What others learn from positive pairs, by scikit-learn's interface: NT-Xent and VICReg.

A. Bardes, J. Ponce and Y. LeCun, "VICReg: Variance-Invariance-Covariance Regularization for
Self-Supervised Learning", ICLR 2022. On walks NT-Xent is like D. Dwibedi et al., "With a Little
Help from My Friends: Nearest-Neighbor Contrastive Learning of Visual Representations", ICCV 2021.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import torch
from pytorch_metric_learning.losses import VICRegLoss
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import normalize
from torch import nn

from rivals.from_views import nt_xent, optimise
from sklearn_mmdinit import MLP
from sklearn_mmdinit._base.random_streams import seeds_of
from sklearn_mmdinit.coherence import fit_embedding, positive_pairs
from sklearn_mmdinit.training.minibatches import RowBatches


def vicreg(Z: torch.Tensor, covariance: float = 1.0) -> torch.Tensor:
    """VICReg of views Z (2 n, width), the first ones and then the second."""
    first, second = Z.chunk(2)
    return VICRegLoss(covariance_v=covariance)(first, ref_emb=second)


# The loss of outputs of a head and a number that is chosen; the width of these outputs.
LOSSES = {"NT-Xent": (nt_xent, 128), "VICReg": (vicreg, 392)}


@dataclass(eq=False, repr=False)
class PairLearner(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns a perceptron and a head of two layers from the pairs that a coherence draws.

    Pairs are those of an MMDInitializer with this coherence and seed. Features are what the head
    reads, of unit norm.
    """

    coherence: Any
    loss: str = "NT-Xent"
    sharpness: float = 0.5  # temperature of NT-Xent, weight of the covariances of VICReg
    learning_rate_init: float = 1e-3
    steps: int = 3000
    hidden_layer_sizes: tuple[int, ...] = (392, 392, 392)
    random_state: int = 0
    device: str = "cpu"
    verbose: int = 0

    def _body(self, n_features: int) -> nn.Sequential:
        mlp = MLP(n_features, self.hidden_layer_sizes, n_classes=2)
        return nn.Sequential(*chain(*zip(mlp.linears, mlp.activations, strict=False)))

    def _pairs(self, X: np.ndarray) -> Iterator[torch.Tensor]:
        """Mini-batches (2 n, n_features): first rows of pairs, then second rows."""
        (seed,), coherence = seeds_of(self.random_state, 1), self.coherence
        pairs = positive_pairs(coherence, fit_embedding(coherence, X, seed), X, seed)
        size = min(coherence.batch_size, len(X))
        batches = RowBatches(X, size, seed, torch.from_numpy, pairs)
        self.n_iter_ = -(-self.steps // batches.steps_an_epoch)
        return (batch for batch, _ in batches.from_(0, 0, 0, torch.device("cpu")))

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        batches, losses = self._pairs(X), []
        loss_of, n_out = LOSSES[self.loss]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            body, width = self._body(X.shape[1]), self.hidden_layer_sizes[-1]
            head = [nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()]
            net = nn.Sequential(body, *head, nn.Linear(width, n_out))

            def loss() -> torch.Tensor:
                loss = loss_of(net(next(batches)), self.sharpness)
                losses.append(float(loss.detach()))
                return loss

            optimise(net, loss, self.learning_rate_init, steps=self.steps)
        arrays = {name: value.numpy() for name, value in body.state_dict().items()}
        self.theta0_ = SimpleNamespace(arrays=arrays)
        self.best_loss_ = float(np.mean(losses[-50:]))
        return self

    @torch.no_grad()
    def transform(self, X: np.ndarray) -> np.ndarray:
        body = self._body(X.shape[1])
        body.load_state_dict({n: torch.from_numpy(a) for n, a in self.theta0_.arrays.items()})
        return normalize(body(torch.from_numpy(X)).numpy())
