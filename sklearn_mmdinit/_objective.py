r"""The pre-training objective, :math:`L = L_{uni} + \lambda L_{sd} + \xi L_{iod}`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch

from ._compute import StepRandom, Workspace
from ._mmd import median_bandwidth, mmd
from ._mmd_interval import (
    SMALLEST_BANDWIDTH,
    interval_median_bandwidth,
    interval_mmd,
)
from ._network import ACTIVATIONS, MLP
from ._perturbation import perturbed_logits

__all__ = [
    "REFERENCES",
    "MMDObjective",
    "RandomLabelObjective",
    "degeneracy",
    "detachment",
    "jacobian_norms",
    "uniformity",
]

# Added to squared norms under a root, whose slope at 0 is infinite.
_TINY = 1e-12

REFERENCES = ("sampled", "closed_form")


def uniformity(
    P: torch.Tensor,
    U: torch.Tensor,
    estimator: str = "unbiased",
    reference: str = "sampled",
) -> torch.Tensor:
    r"""L_uni: the mean over inputs of the MMD between predictions and the uniform law.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions (rows on the simplex) of K perturbed networks on B inputs.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex.
    estimator : {"unbiased", "biased"}, default="unbiased"
        Within-set means without or with the pairs of a point with itself.
    reference : {"sampled", "closed_form"}, default="sampled"
        ``"closed_form"`` takes the expectations over `U` exactly; two classes only. `U`
        still enters the median bandwidth.

    Returns
    -------
    Tensor, scalar
        Eq. (uniformity_loss) of the paper.
    """
    if P.shape[-1] == 2:
        # The gradient with respect to the first class carries that of the second.
        p, u = P[..., 0].mT, U[:, 0].contiguous()
        gamma = interval_median_bandwidth(p, u)
        if reference == "closed_form" or _interval_serves(gamma, p.shape[1], len(u)):
            return interval_mmd(p, u, gamma, estimator, reference).mean()
    else:
        gamma = median_bandwidth(P.transpose(0, 1), U)
    return mmd(P.transpose(0, 1), U, gamma, estimator).mean()


def _interval_serves(gamma: torch.Tensor, n_p: int, n_u: int) -> bool:
    """Whether the bandwidths are large enough for the form on the interval."""
    if gamma.device.type == "cpu":
        return float(gamma.min()) >= SMALLEST_BANDWIDTH
    # To look would be to wait for the device. With as many references as predictions at
    # least, the median is 0.24 or more in the mean over the references.
    return n_u >= n_p


def degeneracy(P: torch.Tensor) -> torch.Tensor:
    r"""L_sd: how far networks stay from the vertex they come nearest to least.

    :math:`E_\epsilon [\max\{\max_i E_x \|v_i - f_\epsilon(x)\|, 1/\sqrt d\} - 1/\sqrt d]`.

    Parameters
    ----------
    P : Tensor of shape (K, B, d)
        Predictions; the mean over inputs is taken for each network.

    Returns
    -------
    Tensor, scalar
        Eq. (underclass_loss) of the paper; 0 where every network has, for each class, a mean
        distance to its vertex of at most 1/sqrt(d).
    """
    threshold = 1.0 / math.sqrt(P.shape[-1])
    squared = 1.0 - 2.0 * P + P.square().sum(-1, keepdim=True)
    distances = squared.clamp(min=_TINY).sqrt().mean(dim=1)
    return distances.amax(dim=-1).clamp(min=threshold).mean() - threshold


def jacobian_norms(module: MLP, X: torch.Tensor) -> torch.Tensor:
    """Norms of the rows of the Jacobians of the logits, unperturbed.

    Under batch normalisation the pre-activation is the activation's input, and the
    statistics of the mini-batch count as constants.

    Parameters
    ----------
    module : MLP
        The network at theta0, in training mode where it has batch normalisation.
    X : Tensor of shape (B, n_features)
        Mini-batch.

    Returns
    -------
    Tensor of shape (B, d, L)
        Norm of the i-th row of the Jacobian with respect to the input (l = 0) and to the
        pre-activation of each hidden layer (l = 1 .. L - 1).
    """
    activation = ACTIVATIONS[module.architecture.activation]
    slopes, gains, H = [], [], X
    for layer, linear in enumerate(module.linear_layers[:-1]):
        H = linear(H)
        if module.architecture.batch_norm:
            norm = module.norm_layers[layer]
            running = cast("torch.Tensor", norm.running_var)
            variance = H.var(dim=0, correction=0) if norm.training else running
            gains.append(norm.weight * (variance + norm.eps).rsqrt())
            H = norm(H)
        slopes.append(activation.derivative(H))
        H = activation.function(H)
    rows = module.linear_layers[-1].weight.expand(len(X), -1, -1)
    norms = []
    for layer in range(len(slopes) - 1, -1, -1):
        rows = rows * slopes[layer].unsqueeze(1)
        norms.append(_row_norms(rows))
        if gains:
            rows = rows * gains[layer]
        rows = rows @ module.linear_layers[layer].weight
    norms.append(_row_norms(rows))
    return torch.stack(norms[::-1], dim=-1)


def _row_norms(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(-1).add(_TINY).sqrt()


def detachment(module: MLP, X: torch.Tensor) -> torch.Tensor:
    r"""L_iod: how far Jacobian rows are from unit norm at the worst layer.

    :math:`E_x [\frac 1 d \sum_i \max_l (1 - \|J_i^{(l:L)}(x_l)\|)^2]`.

    Parameters
    ----------
    module : MLP
        The network at theta0.
    X : Tensor of shape (B, n_features)
        Mini-batch.

    Returns
    -------
    Tensor, scalar
        Eq. (ignore_loss) of the paper.
    """
    return (1.0 - jacobian_norms(module, X)).square().amax(dim=-1).mean()


@dataclass(frozen=True)
class MMDObjective:
    """The paper's loss, eq. (final_loss), on a mini-batch.

    Terms with weight 0 are still computed: they are part of the history.
    """

    n_perturbations: int
    n_uniform_samples: int
    perturbation_scale: float
    degeneracy_weight: float
    detachment_weight: float
    estimator: str
    reference: str
    sampler: str
    workspace: Workspace | None = None

    term_names = ("loss", "uniformity", "degeneracy", "detachment")

    @property
    def n_networks(self) -> int:
        """Networks that each mini-batch goes through."""
        return self.n_perturbations

    def __call__(self, module: MLP, X: torch.Tensor, random: StepRandom) -> torch.Tensor:
        """The terms named by ``term_names``, a tensor of shape (4,); the first is the loss."""
        n_classes = module.architecture.n_classes
        U = random.simplex(self.n_uniform_samples, n_classes)
        logits = perturbed_logits(
            module,
            X,
            self.n_perturbations,
            self.perturbation_scale,
            random,
            self.sampler,
            workspace=self.workspace,
        )
        P = logits.softmax(dim=-1)
        terms = (
            uniformity(P, U, self.estimator, self.reference),
            degeneracy(P),
            detachment(module, X),
        )
        loss = terms[0] + self.degeneracy_weight * terms[1] + self.detachment_weight * terms[2]
        return torch.stack((loss, *terms))


@dataclass(frozen=True)
class RandomLabelObjective:
    """Cross entropy with labels drawn anew for every mini-batch (Pondenkandath et al., 2018)."""

    term_names = ("loss",)
    n_networks = 1

    def __call__(self, module: MLP, X: torch.Tensor, random: StepRandom) -> torch.Tensor:
        """The loss, a tensor of shape (1,)."""
        labels = random.labels(len(X), module.architecture.n_classes)
        return torch.nn.functional.cross_entropy(module(X), labels).unsqueeze(0)
