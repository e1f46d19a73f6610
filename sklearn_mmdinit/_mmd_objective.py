"""The loss that the parameters of MMDInitializer ask for."""

from __future__ import annotations

from typing import Any

from ._coherence import coherence_of
from ._compute import Workspace
from ._mmd_parameters import has_paper_terms
from ._objective import CoherentObjective, MMDObjective
from ._pretraining import Objective
from ._sampling import Perturbation

__all__ = ["objective_of"]


def objective_of(estimator: Any) -> Objective:
    """The paper's three terms, coherence, or all four.

    Parameters
    ----------
    estimator : MMDInitializer
        With values in place of "auto".
    """
    coherence = coherence_of(estimator.coherence)
    paper = None
    if has_paper_terms(estimator):
        paper = MMDObjective(
            Perturbation(
                estimator.n_perturbations,
                estimator.perturbation_scale,
                estimator.sampler,
                estimator.precision,
            ),
            n_uniform_samples=estimator.n_uniform_samples or estimator.n_perturbations,
            degeneracy_weight=estimator.degeneracy_weight,
            detachment_weight=estimator.detachment_weight,
            estimator=estimator.mmd_estimator,
            reference=estimator.reference,
            workspace=Workspace(),
            uniformity_weight=estimator.uniformity_weight,
            jacobian_at=estimator.jacobian_at,
        )
    if coherence is None:
        assert paper is not None  # checked
        return paper
    return CoherentObjective(paper, estimator.batch_size, coherence.weight, coherence.separation)
