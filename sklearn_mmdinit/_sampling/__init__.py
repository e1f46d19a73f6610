"""Networks around theta0, drawn by either of two samplers of the same law.

``direct`` draws every weight, ``gram`` what the weights add to a layer's outputs; each has its
own forward and backward pass. Predictions of all K networks come from ``perturbed_logits``.
"""

from .choice import SAMPLERS, gram_is_cheaper, layers_by_gram
from .gram import noise_factor
from .law import Perturbation, bias_std, weight_std
from .networks import perturbed_logits
from .semidefinite import inverse_factor

__all__ = [
    "SAMPLERS",
    "Perturbation",
    "bias_std",
    "gram_is_cheaper",
    "inverse_factor",
    "layers_by_gram",
    "noise_factor",
    "perturbed_logits",
    "weight_std",
]
