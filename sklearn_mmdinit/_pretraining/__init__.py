"""Learning theta0 from unlabelled rows: the loop, its steps, and the estimator around them.

``BaseInitializer`` has the whole life of an initializer but for what is minimised: any
callable that returns loss terms, such as those of the room of objectives.
"""

from .base import BaseInitializer
from .checks import check_choice, check_finite

__all__ = ["BaseInitializer", "check_choice", "check_finite"]
