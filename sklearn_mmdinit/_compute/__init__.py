"""What any computation may use: devices, float32, random streams, threads, memory, a way back.

Nothing in this room knows of networks or losses, and it imports no other room. Every draw is
a function of (seed, step); the number of threads changes results at rounding level only.
"""

from .device import torch_device
from .float32 import array_of, as_float32, check_float32
from .gradients import learned_is_finite, with_gradients
from .parts import concatenated
from .portions import in_portions
from .precision import PRECISIONS, native_precision
from .private_generators import seeded_generators
from .random_streams import StepRandom, augmentation_generator, permutation, walk_generator
from .recomputation import recomputed
from .taken_back import all_or_nothing
from .threads import share, team, worthwhile_threads
from .workspace import Empty, Workspace, fresh

__all__ = [
    "PRECISIONS",
    "Empty",
    "StepRandom",
    "Workspace",
    "all_or_nothing",
    "array_of",
    "as_float32",
    "augmentation_generator",
    "check_float32",
    "concatenated",
    "fresh",
    "in_portions",
    "learned_is_finite",
    "native_precision",
    "permutation",
    "recomputed",
    "seeded_generators",
    "share",
    "team",
    "torch_device",
    "walk_generator",
    "with_gradients",
    "worthwhile_threads",
]
