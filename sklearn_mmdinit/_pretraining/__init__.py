"""Learning theta0 from unlabelled rows: the loop, its steps, and the estimator around them.

``BaseInitializer`` has the whole life of an initializer but for what is minimised: any
callable that returns loss terms, such as those of the room of objectives.
"""

from .base import BaseInitializer
from .batches import Batches, WalkBatches, check_augmentation, steps_at_a_time
from .blueprint import Blueprint
from .checks import check_choice, check_factors, check_finite, check_gain, check_positive, is_auto
from .feeds import Feed, RowFeed, examples_of
from .gain import gain_of_first_step
from .rows import examples_checked
from .schedule import KEEP, LEARNING_RATES, Schedule
from .state import PretrainingState
from .steps import Objective

__all__ = [
    "KEEP",
    "LEARNING_RATES",
    "BaseInitializer",
    "Batches",
    "Blueprint",
    "Feed",
    "Objective",
    "PretrainingState",
    "RowFeed",
    "Schedule",
    "WalkBatches",
    "check_augmentation",
    "check_choice",
    "check_factors",
    "check_finite",
    "check_gain",
    "check_positive",
    "examples_checked",
    "examples_of",
    "gain_of_first_step",
    "is_auto",
    "steps_at_a_time",
]
