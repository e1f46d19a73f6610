"""Parameters of MMDInitializer: which values are valid, those that are "auto" put in."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from ._coherence import check_coherence, coherence_of
from ._compute import PRECISIONS
from ._objective import ESTIMATORS, JACOBIANS, REFERENCES
from ._pretraining import KEEP, LEARNING_RATES, check_choice, check_finite, check_gain
from ._sampling import SAMPLERS

__all__ = ["check_numbers", "check_parameters", "has_paper_terms"]

# The last one is for what a perceptron has not: layers of types that are not known.
MODULE_SAMPLERS = (*SAMPLERS, "functional")

_PAPER_WEIGHTS = ("uniformity_weight", "degeneracy_weight", "detachment_weight")


def has_paper_terms(estimator: Any) -> bool:
    """Whether the loss has any of the paper's three terms."""
    return any(getattr(estimator, name) for name in _PAPER_WEIGHTS)


def check_numbers(estimator: Any) -> None:
    """Raise for strings other than "auto" in place of numbers."""
    for name in ("n_perturbations", "learning_rate_init", "max_iter"):
        if isinstance(value := getattr(estimator, name), str):
            raise ValueError(f'{name} must be a number or "auto", got {value!r}')


def check_parameters(estimator: Any) -> None:
    """Raise an error that names the first parameter of MMDInitializer's own that is not valid."""
    check_choice("mmd_estimator", estimator.mmd_estimator, ESTIMATORS)
    check_choice("reference", estimator.reference, ("auto", *REFERENCES))
    check_choice("jacobian_at", estimator.jacobian_at, JACOBIANS)
    perceptron = estimator.module is None
    check_choice("sampler", estimator.sampler, SAMPLERS if perceptron else MODULE_SAMPLERS)
    if perceptron and estimator.reference == "closed_form" and estimator.n_classes != 2:
        raise ValueError(
            "reference='closed_form' is known for n_classes=2 only, got "
            f"n_classes={estimator.n_classes}; use reference='sampled'"
        )
    check_choice("precision", estimator.precision, ("auto", *PRECISIONS))
    # The U-statistic divides by n - 1.
    check_scalar(estimator.n_perturbations, "n_perturbations", Integral, min_val=2)
    if estimator.n_uniform_samples is not None:
        check_scalar(estimator.n_uniform_samples, "n_uniform_samples", Integral, min_val=2)
    check_finite(estimator, "perturbation_scale", zero=False)
    check_finite(estimator, *_PAPER_WEIGHTS)
    check_choice("learning_rate", estimator.learning_rate, ("auto", *LEARNING_RATES))
    check_choice("keep", estimator.keep, ("auto", *KEEP))
    if perceptron:
        check_gain(
            estimator.gain, estimator.hidden_layer_sizes, estimator.activation, estimator.batch_norm
        )
    coherence = coherence_of(estimator.coherence)
    if coherence is not None:
        check_coherence(coherence)
        if np.size(estimator.hidden_layer_sizes) == 0:
            raise ValueError("coherence needs a hidden layer, got hidden_layer_sizes=()")
    elif not has_paper_terms(estimator):
        raise ValueError(
            f"one of {', '.join(_PAPER_WEIGHTS)} must be above 0 where there is no coherence"
        )
