"""Rivals that search among oriented gradients, as coherence does: it gets no features alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from protocol.bench import Bench
from protocol.embeddings import EMBEDDINGS
from protocol.methods import Contender
from protocol.rival_classifiers import rival_contenders

__all__ = ["GRADIENTS", "gradient_rivals"]

# The best two of the pixels' rivals. Name here -> the rival that gets gradients in their place.
GRADIENTS = {
    "rival/gradients-svm": "rival/rbf-svm",
    "rival/gradients-label-spreading": "rival/label-spreading",
}
"""In the order of the tables; they are there with ``--neighbors gradients`` alone."""


def gradient_rivals(names: Sequence[str], bench: Bench, *, n_jobs: int = 1) -> list[Contender]:
    """Those of GRADIENTS that are among the names."""
    own = {of: name for name, of in GRADIENTS.items() if name in names}
    if not own:
        return []
    gradients = EMBEDDINGS["gradients"]
    assert gradients is not None
    histograms: np.ndarray = gradients.fit_transform(bench.X)
    contenders = rival_contenders(
        histograms, len(bench.X_unlabelled), seed=bench.options.seed, n_jobs=n_jobs, names=[*own]
    )
    return [
        replace(c, name=own[c.name], identity=c.identity | {"embedding": repr(gradients)})
        for c in contenders
    ]
