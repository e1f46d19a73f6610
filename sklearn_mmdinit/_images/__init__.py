"""What is known of images alone: small changes that they bear, and where neighbours look alike.

Rows are images flat or with three axes. Nothing in this room knows of networks or theta0.
"""

from .oriented_gradients import OrientedGradients
from .random_affine import RandomAffine

__all__ = ["OrientedGradients", "RandomAffine"]
