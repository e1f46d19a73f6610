"""The terms of the loss, each a function of tensors that serves in any training loop.

Predictions (K, B, d) of perturbed networks, which two of them take, come from
:func:`torch.func.vmap` of :func:`torch.func.functional_call`, or from whatever else draws networks
around a start.
"""

from .coherence import coherence, coherence_kernel
from .degeneracy import degeneracy
from .detachment import detachment
from .uniformity import uniformity

__all__ = ["coherence", "coherence_kernel", "degeneracy", "detachment", "uniformity"]
