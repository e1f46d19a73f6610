"""Networks around theta0, drawn by either of two samplers of the same law.

``direct`` draws every weight, ``gram`` what the weights add to a layer's outputs; each has its
own forward and backward pass. Predictions of all K networks come from ``perturbed_logits``.
"""

from .choice import SAMPLERS
from .law import Perturbation
from .networks import perturbed_logits

__all__ = ["SAMPLERS", "Perturbation", "perturbed_logits"]
