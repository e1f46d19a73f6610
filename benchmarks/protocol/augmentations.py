"""How images are changed along the walks of coherence: what their tasks do not mind."""

from __future__ import annotations

from sklearn_mmdinit import RandomAffine

__all__ = ["AUGMENTATIONS"]

# Chosen on run 4, which is not reported: better than shifts alone, which are better than nothing.
AUGMENTATIONS = {"none": None, "digits": RandomAffine()}
"""By the name that ``--augmentation`` takes."""
