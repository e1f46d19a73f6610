"""What a network is, and its initial parameters theta0.

A shape (``Architecture``) and the perceptron of it, its activations and random weights, or the
description of a module; theta0 as NumPy arrays: alone, in a file, or carried by an array.
"""

from .activations import ACTIVATIONS
from .architecture import Architecture
from .files import load_theta0, save_theta0
from .gain import has_gain, scales_freely, with_gain, without_gain
from .inits import INITS, random_theta0
from .mlp import BATCH_NORM_EPS, MLP, module_from_theta0, theta0_from_module
from .module_architecture import ModuleArchitecture, digest_of
from .module_state import (
    arrays_of,
    as_arrays,
    put_arrays_,
    qualified_name,
    start_module_,
    uncompiled,
)
from .tagged import tag, tag_is_lost, theta0_of
from .theta0 import Theta0
from .whole_file import check_folder_of, write_whole

__all__ = [
    "ACTIVATIONS",
    "BATCH_NORM_EPS",
    "INITS",
    "MLP",
    "Architecture",
    "ModuleArchitecture",
    "Theta0",
    "arrays_of",
    "as_arrays",
    "check_folder_of",
    "digest_of",
    "has_gain",
    "load_theta0",
    "module_from_theta0",
    "put_arrays_",
    "qualified_name",
    "random_theta0",
    "save_theta0",
    "scales_freely",
    "start_module_",
    "tag",
    "tag_is_lost",
    "theta0_from_module",
    "theta0_of",
    "uncompiled",
    "with_gain",
    "without_gain",
    "write_whole",
]
