"""One pre-training step as the paper writes it: the reference for figures of speed.

Every perturbed network is a copy of every weight plus its noise, and autograd does the rest.
Nothing of the library is used here, so that its errors cannot hide in its reference.
"""

import math
from collections.abc import Iterable

import torch
from torch import nn

# A weight (n_out, n_in) and a bias (n_out,) for each layer in turn; copies have K in front.
Network = list[torch.Tensor]

SCALE, DEGENERACY_WEIGHT = math.sqrt(0.5), 0.4


def _copies(network: Network, K: int, generator: torch.Generator) -> Network:
    """theta0 + epsilon: std s / sqrt(n_in) for a weight, s / sqrt(n_out) for a bias."""
    normals = (torch.randn(K, *w.shape, generator=generator, device=w.device) for w in network)
    return [w + SCALE / math.sqrt(w.shape[-1]) * e for w, e in zip(network, normals, strict=True)]


def _stacked_logits(copies: Network, X: torch.Tensor) -> torch.Tensor:
    """Logits (K, B, d) by batched products."""
    H = X.expand(len(copies[0]), -1, -1)
    for i in range(0, len(copies), 2):
        H = torch.baddbmm(copies[i + 1].unsqueeze(1), H.relu() if i else H, copies[i].mT)
    return H


def _vmap_logits(copies: Network, X: torch.Tensor) -> torch.Tensor:
    """The same by ``torch.func.vmap`` of a network."""

    def logits(*network: torch.Tensor) -> torch.Tensor:
        H = X
        for i in range(0, len(network), 2):
            H = nn.functional.linear(H.relu() if i else H, network[i], network[i + 1])
        return H

    return torch.func.vmap(logits)(*copies)


FORMS = {"direct": _stacked_logits, "vmap": _vmap_logits}


def _squared_distances(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return (A.unsqueeze(-2) - B.unsqueeze(-3)).square().sum(-1)


def _uniformity(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Mean unbiased MMD of predictions (B, K, d) and samples (M, d)."""
    with torch.no_grad():
        points = torch.cat([P, U.expand(len(P), -1, -1)], dim=1)
        i, j = torch.triu_indices(points.shape[1], points.shape[1], offset=1, device=P.device)
        pairs = _squared_distances(points, points)[:, i, j].sqrt()
        gamma = pairs.median(dim=1).values[:, None, None]

    def kernel(squared: torch.Tensor) -> torch.Tensor:
        widths = [2.0**power * gamma for power in range(-4, 5)]
        return torch.stack([torch.exp(-squared / (2.0 * w.square())) for w in widths]).sum(0)

    def within(squared: torch.Tensor) -> torch.Tensor:
        k, n = kernel(squared), squared.shape[1]
        return (k.sum((1, 2)) - k.diagonal(dim1=1, dim2=2).sum(1)) / (n * (n - 1))

    between = kernel(_squared_distances(P, U)).mean((1, 2))
    of_samples = _squared_distances(U, U).expand(len(P), -1, -1)
    return (within(_squared_distances(P, P)) - 2.0 * between + within(of_samples)).mean()


def _degeneracy(P: torch.Tensor) -> torch.Tensor:
    """L_sd of predictions (B, K, d)."""
    d = P.shape[-1]
    vertices = torch.eye(d, device=P.device, dtype=P.dtype)
    distances = torch.linalg.vector_norm(P.unsqueeze(-2) - vertices, dim=-1).mean(0)  # (K, d)
    return (distances.max(dim=1).values - 1.0 / math.sqrt(d)).relu().mean()


def _detachment(network: Network, X: torch.Tensor) -> torch.Tensor:
    """L_iod: Jacobian rows of the logits at theta0, by autograd through autograd."""
    stages = [X.detach().requires_grad_()]  # the input, every pre-activation, the logits
    for i in range(0, len(network), 2):
        H = stages[-1].relu() if i else stages[-1]
        stages.append(nn.functional.linear(H, network[i], network[i + 1]))
    losses = []
    for logit in stages[-1].unbind(1):
        rows = torch.autograd.grad(logit.sum(), stages[:-1], create_graph=True)
        norms = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows])  # (L, B)
        losses.append((1.0 - norms).square().max(dim=0).values)
    return torch.stack(losses).mean()


def textbook_loss(
    network: Network, X: torch.Tensor, copies: Network, U: torch.Tensor, form: str = "direct"
) -> torch.Tensor:
    """Eq. (final_loss) of the paper on a mini-batch (B, n_features), with uniform samples U."""
    P = FORMS[form](copies, X).softmax(-1).transpose(0, 1)
    return _uniformity(P, U) + DEGENERACY_WEIGHT * _degeneracy(P) + _detachment(network, X)


class TextbookStep:
    """Copies of weights and biases with their optimiser and their draws; each call is a step."""

    def __init__(
        self, weights: Iterable[torch.Tensor], n_perturbations: int, form: str = "direct",
        learning_rate: float = 2e-4, device: str = "cpu", seed: int = 0,
    ) -> None:  # fmt: skip
        self.network = [w.detach().to(device).clone().requires_grad_() for w in weights]
        self.n_perturbations, self.form = n_perturbations, form
        self.optimizer = torch.optim.Adam(self.network, lr=learning_rate)
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, X: torch.Tensor) -> float:
        """Take one step on a mini-batch and return the loss."""
        K = self.n_perturbations
        U = torch.empty(K, len(self.network[-1]), device=X.device)
        U = U.exponential_(generator=self.generator)
        copies = _copies(self.network, K, self.generator)
        loss = textbook_loss(self.network, X, copies, U / U.sum(1, keepdim=True), self.form)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return float(loss.detach())
