"""Rivals that see oriented gradients, where coherence finds its neighbours by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from protocol.bench import Bench
from protocol.embeddings import EMBEDDINGS
from protocol.methods import Contender
from protocol.rival_augmented import augmented_svm
from protocol.rival_classifiers import principal_components, rival_contenders
from sklearn_mmdinit import OrientedGradients

__all__ = ["AUGMENTED_GRADIENTS", "GRADIENTS", "gradient_rivals"]

# The best two of the pixels' rivals: name here -> the rival that gets gradients in their place.
GRADIENTS = {
    "rival/gradients-svm": "rival/rbf-svm",
    "rival/gradients-label-spreading": "rival/label-spreading",
}
"""In the order of the tables; they are there with ``--neighbors gradients`` alone."""

AUGMENTED_GRADIENTS = "rival/augmented-gradients-svm"
"""There with augmentation as well: what coherence gets of images, it gets."""


def gradient_rivals(names: Sequence[str], bench: Bench, *, n_jobs: int = 1) -> list[Contender]:
    """Those of GRADIENTS and AUGMENTED_GRADIENTS that are among the names."""
    own = {of: name for name, of in GRADIENTS.items() if name in names}
    if not own and AUGMENTED_GRADIENTS not in names:
        return []
    gradients = clone(EMBEDDINGS["gradients"])
    assert isinstance(gradients, OrientedGradients)
    identity = {"embedding": ["OrientedGradients", gradients.get_params()]}
    histograms: np.ndarray = gradients.fit_transform(bench.X)
    seed, n_train = bench.options.seed, len(bench.X_unlabelled)
    contenders = rival_contenders(histograms, n_train, seed=seed, n_jobs=n_jobs, names=[*own])
    found = [replace(c, name=own[c.name], identity=c.identity | identity) for c in contenders]
    if AUGMENTED_GRADIENTS in names:
        pca = principal_components(histograms[:n_train], seed)
        augmented = augmented_svm(AUGMENTED_GRADIENTS, bench, gradients, pca)
        found.append(replace(augmented, identity=augmented.identity | identity))
    return found
