"""Learning theta0 from unlabelled rows: the loop, its steps, and the estimator around them.

``BaseInitializer`` has the whole life of an initializer but for what is minimised: any
callable that returns loss terms, such as those of the room of objectives.
"""

from .base import BaseInitializer
from .batches import Batches, WalkBatches
from .checks import check_choice, check_finite, check_gain, check_positive, is_auto
from .gain import gain_of_first_step
from .schedule import KEEP, LEARNING_RATES, Schedule
from .steps import Objective

__all__ = [
    "KEEP",
    "LEARNING_RATES",
    "BaseInitializer",
    "Batches",
    "Objective",
    "Schedule",
    "WalkBatches",
    "check_choice",
    "check_finite",
    "check_gain",
    "check_positive",
    "gain_of_first_step",
    "is_auto",
]
