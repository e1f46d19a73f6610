"""The terms of the loss, each a function of tensors.

:class:`~sklearn_mmdinit.MMDObjective` computes the paper's three terms for a module and a
mini-batch, by functions of this folder. They take predictions (K, B, d) of K perturbed networks, or
norms of Jacobians. :func:`coherence` takes hidden activations of positive pairs.
"""

from ._coherence import CoherenceLoss, coherence
from ._degenerate import degeneracy, detachment
from ._uniformity import uniformity

__all__ = [
    "CoherenceLoss",
    "coherence",
    "degeneracy",
    "detachment",
    "uniformity",
]
