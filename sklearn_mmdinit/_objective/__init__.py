"""What pre-training minimises: one loss term a file, and their weighted sum.

A term takes predictions of the perturbed networks, or theta0 and a mini-batch, and returns a
scalar. An objective is called with (module, X, random) and returns the values of its terms.
"""

from .coherence import coherence_kernel
from .coherent_objective import CoherentObjective
from .detachment import JACOBIANS
from .mmd import ESTIMATORS
from .mmd_objective import MMDObjective
from .random_label import RandomLabelObjective
from .uniformity import REFERENCES

__all__ = [
    "ESTIMATORS",
    "JACOBIANS",
    "REFERENCES",
    "CoherentObjective",
    "MMDObjective",
    "RandomLabelObjective",
    "coherence_kernel",
]
