r"""The sum of the terms, :math:`L = L_{uni} + \lambda L_{sd} + \xi L_{iod}`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .._compute import StepRandom, Workspace
from .._modules import ModuleNetwork
from .._network import MLP
from .._sampling import Perturbation, perturbed_logits
from .degeneracy import degeneracy
from .detachment import detachment
from .jacobian import NoJacobianError
from .uniformity import uniformity

__all__ = ["MMDObjective"]


@dataclass(frozen=True)
class MMDObjective:
    """The paper's loss, eq. (final_loss), on a mini-batch.

    Terms with weight 0 are still computed: they are part of the history. The detachment of a
    module that has no Jacobian is 0 there.

    Parameters
    ----------
    perturbation : Perturbation
        The networks whose predictions the terms look at.
    n_uniform_samples : int
        M.
    degeneracy_weight, detachment_weight : float
        The paper's lambda and xi.
    estimator, reference : str
        As in :func:`sklearn_mmdinit._objective.uniformity.uniformity`; the reference "auto" is
        "closed_form" where there are two classes.
    workspace : Workspace, default=None
        Buffers to reuse from one mini-batch to the next.
    uniformity_weight : float, default=1.0
        Of L_uni, the sum of its kernels; the paper's text has 1.
    jacobian_at : str, default="pre_activation"
        As in :func:`sklearn_mmdinit._objective.detachment.jacobian_norms`.
    """

    perturbation: Perturbation
    n_uniform_samples: int
    degeneracy_weight: float
    detachment_weight: float
    estimator: str
    reference: str
    workspace: Workspace | None = None
    uniformity_weight: float = 1.0
    jacobian_at: str = "pre_activation"

    term_names = ("loss", "uniformity", "degeneracy", "detachment")

    def rows_a_step(self, n_rows: int) -> int:
        """Rows that go through a network in a step on a mini-batch of so many."""
        return self.perturbation.n_networks * n_rows

    def __call__(
        self, module: MLP | ModuleNetwork, X: torch.Tensor, random: StepRandom
    ) -> torch.Tensor:
        """The terms named by ``term_names``, a tensor of shape (4,); the first is the loss."""
        n_classes, reference = module.architecture.n_classes, self.reference
        if reference == "auto":
            reference = "closed_form" if n_classes == 2 else "sampled"
        U = random.simplex(self.n_uniform_samples, n_classes)
        logits = perturbed_logits(module, X, self.perturbation, random, self.workspace)
        P = logits.softmax(dim=-1)
        terms = (
            uniformity(P, U, self.estimator, reference),
            degeneracy(P),
            self._detachment(module, X, logits),
        )
        loss = self.uniformity_weight * terms[0]
        loss = loss + self.degeneracy_weight * terms[1] + self.detachment_weight * terms[2]
        return torch.stack((loss, *terms))

    def _detachment(
        self, module: MLP | ModuleNetwork, X: torch.Tensor, logits: torch.Tensor
    ) -> torch.Tensor:
        try:
            return detachment(module, X, self.jacobian_at)
        except NoJacobianError:
            if self.detachment_weight:
                raise
            return logits.new_zeros(())
