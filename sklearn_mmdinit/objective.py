r"""What pre-training minimises, :math:`L_{uni} + \lambda L_{sd} + \xi L_{iod} + \mu L_{coh}`."""

from __future__ import annotations

import torch

from ._base.random_streams import StepRandom
from .losses import coherence, degeneracy, detachment, uniformity
from .networks.functional import perturbed_logits
from .networks.passes import Network
from .training.config import Config


def loss_terms(
    network: Network, X: torch.Tensor, random: StepRandom, config: Config
) -> torch.Tensor:
    """The terms (n_terms,) that ``config.term_names`` names; the first one is the loss.

    X (B, ...) is a mini-batch; with coherence the starts of walks and then their ends.
    """
    if config.coherence is None:
        return _paper_terms(network, X, random, config)
    weight, separation = config.coherence.weight, config.coherence.separation
    # Coherence takes all rows; a few of the starts go through the paper's terms.
    own = coherence(network.hidden(X), network.n_last_biases, separation)
    if not config.has_paper_terms:
        return torch.stack((weight * own, own))
    terms = _paper_terms(network, X[: min(config.batch_size, len(X) // 2)], random, config)
    return torch.cat(((terms[0] + weight * own)[None], terms[1:], own[None]))


def _paper_terms(
    network: Network, X: torch.Tensor, random: StepRandom, config: Config
) -> torch.Tensor:
    """The paper's loss, eq. (final_loss), and its terms; the third one only where it counts."""
    K = config.n_perturbations
    U = random.simplex(K, config.n_classes)  # the paper's M is its K
    P = perturbed_logits(network, X, K, config.perturbation_scale, random, config.sampler)
    P = P.softmax(dim=-1)
    terms = [uniformity(P, U, closed_form=config.closed_form), degeneracy(P)]
    if config.detachment_weight:
        terms.append(detachment(network.jacobian_norms(X)))
    else:
        network.batch_statistics(X)  # whose running ones follow the rows all the same
    weights = config.uniformity_weight, config.degeneracy_weight, config.detachment_weight
    loss = sum((w * term for w, term in zip(weights, terms, strict=False)), 0.0 * terms[0])
    return torch.stack((loss, *terms))
