"""The terms of the loss, each a function of tensors that serves in any training loop.

Predictions (K, B, d) of perturbed networks, which two of them take, come from
:func:`torch.func.vmap` of :func:`torch.func.functional_call`, or from whatever else draws networks
around a start.
"""

from ._coherence import coherence, coherence_kernel
from ._degeneracy import degeneracy
from ._detachment import detachment
from ._uniformity import uniformity

__all__ = ["coherence", "coherence_kernel", "degeneracy", "detachment", "uniformity"]
