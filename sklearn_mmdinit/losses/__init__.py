"""The terms of the loss, each a function of tensors that serves in any training loop.

Predictions of perturbed networks, which most of them take, come from ``init.to_module()`` and
:func:`torch.func.functional_call`, or from whatever else draws networks around a start.
"""

from .coherence import coherence, coherence_kernel
from .degeneracy import degeneracy
from .detachment import detachment
from .uniformity import uniformity

__all__ = ["coherence", "coherence_kernel", "degeneracy", "detachment", "uniformity"]
