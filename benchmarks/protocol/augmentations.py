"""How images are changed along the walks of coherence: what their tasks do not mind."""

from __future__ import annotations

from sklearn_mmdinit import RandomAffine

__all__ = ["AUGMENTATIONS"]

# Chosen on runs 4 to 7, which are not reported. A digit has no mirror image; clothes are
# photographed upright.
AUGMENTATIONS = {
    "none": None,
    "digits": RandomAffine(),
    "clothes": RandomAffine(degrees=5.0, mirror=True),
}
"""By the name that ``--augmentation`` takes."""
