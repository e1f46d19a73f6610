"""Networks around theta0: perturbed copies of any module, drawn by any of three samplers."""

from .sampling import SAMPLERS, chosen_samplers, perturbed_logits, reason_for_functional

__all__ = ["SAMPLERS", "chosen_samplers", "perturbed_logits", "reason_for_functional"]
