"""Where coherence searches neighbours, and rivals that get the same."""

from __future__ import annotations

from sklearn_mmdinit import OrientedGradients

__all__ = ["EMBEDDINGS"]

EMBEDDINGS = {"pixels": None, "gradients": OrientedGradients()}
"""By the name that ``--neighbors`` takes."""
