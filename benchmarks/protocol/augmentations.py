"""How images are changed along the walks of coherence: what their tasks do not mind."""

from __future__ import annotations

from sklearn_mmdinit import RandomAffine

__all__ = ["AUGMENTATIONS"]

# Chosen on run 4, which is not reported. Of digits: better than shifts alone, which are better than
# nothing. Of clothes: a shoe may point either way, but they lie straight and fill the picture.
AUGMENTATIONS = {
    "none": None,
    "digits": RandomAffine(),
    "clothes": RandomAffine(degrees=5.0, shift=1.0, scale=0.05, shear=3.0, mirror=True),
}
"""By the name that ``--augmentation`` takes."""
