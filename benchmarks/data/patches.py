"""Features of photographs that need no labels: how near their patches are to typical ones.

A. Coates, H. Lee and A. Ng, "An Analysis of Single-Layer Networks in Unsupervised Feature
Learning", AISTATS 2011.
"""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import gen_batches
from torch.nn.functional import adaptive_avg_pool2d, unfold

_IMAGES_AT_A_TIME, _N_FITTED, _PATCHES_OF_AN_IMAGE = 100, 4000, 18
# Of pixels from 0 to 255, and of whitened ones.
_LEAST_VARIANCE, _LEAST_EIGENVALUE = 10.0, 0.1


class PatchFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Activations in each quarter of an image of the clusters of whitened patches: roots of means.

    A cluster's activation is how much nearer than the mean of all clusters it is to a patch, or 0.
    Images are flat squares of three channels, of whole numbers up to 255.
    """

    def __init__(self, n_clusters: int = 400, side: int = 6, stride: int = 2) -> None:
        self.n_clusters = n_clusters
        self.side = side
        self.stride = stride

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        """Learn the whitening and the clusters from patches of some images."""
        rng = np.random.default_rng(0)
        rows = rng.permutation(len(X))[:_N_FITTED]
        patches = torch.cat([
            part[:, rng.permutation(part.shape[1])[:_PATCHES_OF_AN_IMAGE]].flatten(0, 1)
            for part in self._patches(X[rows])
        ])  # fmt: skip
        self.mean_ = patches.mean(dim=0)
        values, vectors = torch.linalg.eigh(torch.cov(patches.T))
        self.whitening_ = (vectors / (values + _LEAST_EIGENVALUE).sqrt()) @ vectors.T
        clusters = MiniBatchKMeans(self.n_clusters, n_init=1, batch_size=4096, random_state=0)
        clusters.fit(((patches - self.mean_) @ self.whitening_).numpy())
        self.centers_ = torch.from_numpy(clusters.cluster_centers_)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Features (n, 4 n_clusters)."""
        parts = []
        for patches in self._patches(X):
            distances = torch.cdist((patches - self.mean_) @ self.whitening_, self.centers_)
            near = (distances.mean(dim=2, keepdim=True) - distances).relu().transpose(1, 2)
            across = round(near.shape[2] ** 0.5)
            quarters = adaptive_avg_pool2d(near.reshape(*near.shape[:2], across, across), 2)
            parts.append(quarters.flatten(1).sqrt().numpy())
        return np.concatenate(parts)

    def _patches(self, X: np.ndarray) -> Iterator[torch.Tensor]:
        """Patches (n, places, numbers) of some images at a time, each of mean 0 and variance 1."""
        across = round((X.shape[1] / 3) ** 0.5)
        for rows in gen_batches(len(X), _IMAGES_AT_A_TIME):
            images = torch.from_numpy(X[rows].astype(np.float32)).view(-1, 3, across, across)
            patches = unfold(images, self.side, stride=self.stride).transpose(1, 2)
            variance = patches.var(dim=2, keepdim=True) + _LEAST_VARIANCE
            yield (patches - patches.mean(dim=2, keepdim=True)) / variance.sqrt()
