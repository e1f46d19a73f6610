"""One pre-training step as the paper writes it: the reference for figures of speed.

Every perturbed network is a copy of every weight plus its noise, the nine Gaussians of the
kernel are nine exponentials of all pairwise distances, the median is that of all pairs, and
autograd does the rest. ``FORMS`` has two ways to run the copies: batched products over stacked
weights, and ``torch.func.vmap`` of ``functional_call``. Only PyTorch is used here and nothing
of the library, so that an error of the library cannot hide in its reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

__all__ = [
    "FORMS",
    "Network",
    "Setting",
    "TextbookStep",
    "draw_normals",
    "network_from_arrays",
    "textbook_loss",
    "textbook_predictions",
]

# (weight (n_out, n_in), bias (n_out,)) a layer; noise has the same with K in front.
Network = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Setting:
    """The numbers of the objective; the paper's values are the defaults."""

    n_perturbations: int = 256
    n_uniform_samples: int = 256
    scale: float = math.sqrt(0.5)
    degeneracy_weight: float = 0.4
    detachment_weight: float = 1.0
    learning_rate: float = 2e-4


def network_from_arrays(
    coefs: Sequence[np.ndarray],
    intercepts: Sequence[np.ndarray],
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Network:
    """A ReLU network from arrays in scikit-learn's orientation, weights (n_in, n_out)."""
    return [
        (
            torch.tensor(np.ascontiguousarray(W.T), device=device, dtype=dtype).requires_grad_(),
            torch.tensor(b, device=device, dtype=dtype).requires_grad_(),
        )
        for W, b in zip(coefs, intercepts, strict=True)
    ]


def draw_normals(network: Network, n_networks: int, generator: torch.Generator) -> Network:
    """Standard normals for every weight and bias of K networks."""
    return [
        (
            torch.randn(n_networks, *W.shape, generator=generator, device=W.device, dtype=W.dtype),
            torch.randn(n_networks, *b.shape, generator=generator, device=b.device, dtype=b.dtype),
        )
        for W, b in network
    ]


def _copies(network: Network, normals: Network, scale: float) -> Network:
    """theta0 + epsilon: std s / sqrt(n_in) for a weight, s / sqrt(n_out) for a bias."""
    return [
        (W + scale / math.sqrt(W.shape[1]) * E, b + scale / math.sqrt(W.shape[0]) * e)
        for (W, b), (E, e) in zip(network, normals, strict=True)
    ]


def _stacked_logits(copies: Network, X: torch.Tensor) -> torch.Tensor:
    H = X.expand(len(copies[0][0]), -1, -1)
    for layer, (W, b) in enumerate(copies):
        H = torch.baddbmm(b.unsqueeze(1), H, W.mT)
        if layer < len(copies) - 1:
            H = H.relu()
    return H


def _vmap_logits(copies: Network, X: torch.Tensor) -> torch.Tensor:
    layers: list[torch.nn.Module] = []
    for W, _ in copies:
        # On "meta" the module is only a description: its own weights are never made.
        layers += [torch.nn.Linear(W.shape[2], W.shape[1], device="meta"), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    names = [name for name, _ in model.named_parameters()]
    stacked = dict(zip(names, [tensor for pair in copies for tensor in pair], strict=True))

    def logits(parameters: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.func.functional_call(model, parameters, (rows,))
        return out

    return torch.func.vmap(logits, in_dims=(0, None))(stacked, X)


FORMS: dict[str, Callable[[Network, torch.Tensor], torch.Tensor]] = {
    "direct": _stacked_logits,
    "vmap": _vmap_logits,
}


def _squared_distances(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return (A.unsqueeze(-2) - B.unsqueeze(-3)).square().sum(-1)


def _mmd(P: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Unbiased MMD of predictions (B, K, d) and samples (M, d), for each of B inputs."""
    K, M = P.shape[1], len(U)
    with torch.no_grad():
        points = torch.cat([P, U.expand(len(P), -1, -1)], dim=1)
        i, j = torch.triu_indices(K + M, K + M, offset=1, device=P.device)
        pairs = _squared_distances(points, points)[:, i, j].sqrt()
        gamma = pairs.median(dim=1).values

    def kernel(squared: torch.Tensor) -> torch.Tensor:
        widths = [(2.0**power * gamma)[:, None, None] for power in range(-4, 5)]
        gaussians = [torch.exp(-squared / (2.0 * width.square())) for width in widths]
        return torch.stack(gaussians).sum(0)

    def within(squared: torch.Tensor, n: int) -> torch.Tensor:
        k = kernel(squared)
        off_diagonal = k.sum((1, 2)) - k.diagonal(dim1=1, dim2=2).sum(1)
        return off_diagonal / (n * (n - 1))

    between = kernel(_squared_distances(P, U)).mean((1, 2))
    within_u = within(_squared_distances(U, U).expand(len(P), -1, -1), M)
    return within(_squared_distances(P, P), K) - 2.0 * between + within_u


def _degeneracy(P: torch.Tensor) -> torch.Tensor:
    """L_sd of predictions (K, B, d)."""
    d = P.shape[-1]
    vertices = torch.eye(d, device=P.device, dtype=P.dtype)
    distances = torch.linalg.vector_norm(P.unsqueeze(-2) - vertices, dim=-1).mean(1)  # (K, d)
    worst = distances.max(dim=1).values
    return (worst.clamp(min=1.0 / math.sqrt(d)) - 1.0 / math.sqrt(d)).mean()


def _detachment(network: Network, X: torch.Tensor) -> torch.Tensor:
    """L_iod: Jacobian rows of the logits at theta0, by autograd through autograd."""
    inputs = [X.detach().requires_grad_()]
    H = inputs[0]
    for W, b in network[:-1]:
        inputs.append(torch.nn.functional.linear(H, W, b))
        H = inputs[-1].relu()
    logits = torch.nn.functional.linear(H, *network[-1])
    losses = []
    for i in range(logits.shape[1]):
        rows = torch.autograd.grad(logits[:, i].sum(), inputs, create_graph=True)
        norms = torch.stack([torch.linalg.vector_norm(row, dim=1) for row in rows])  # (L, B)
        losses.append((1.0 - norms).square().max(dim=0).values)
    return torch.stack(losses).mean()


def textbook_loss(
    network: Network,
    X: torch.Tensor,
    normals: Network,
    U: torch.Tensor,
    setting: Setting,
    form: str = "direct",
) -> torch.Tensor:
    """Eq. (final_loss) of the paper on one mini-batch.

    Parameters
    ----------
    network : Network
        theta0; gradients flow here.
    X : Tensor of shape (B, n_features)
        Mini-batch.
    normals : Network
        Standard normals of K networks, from :func:`draw_normals`.
    U : Tensor of shape (M, d)
        Uniform samples on the simplex.
    setting : Setting
        Weights and scale.
    form : {"direct", "vmap"}, default="direct"
        Key of :data:`FORMS`.

    Returns
    -------
    Tensor, scalar
        The loss.
    """
    P = FORMS[form](_copies(network, normals, setting.scale), X).softmax(-1)
    return (
        _mmd(P.transpose(0, 1), U).mean()
        + setting.degeneracy_weight * _degeneracy(P)
        + setting.detachment_weight * _detachment(network, X)
    )


def textbook_predictions(
    network: Network, X: torch.Tensor, setting: Setting, generator: torch.Generator
) -> torch.Tensor:
    """Predictions (K, B, d) of freshly drawn networks, without gradients."""
    with torch.no_grad():
        normals = draw_normals(network, setting.n_perturbations, generator)
        return _stacked_logits(_copies(network, normals, setting.scale), X).softmax(-1)


class TextbookStep:
    """A network, its optimiser and its draws; each call is one step on a mini-batch.

    Parameters
    ----------
    network : Network
        Where to start; changed in place.
    setting : Setting
        Numbers of the objective.
    form : {"direct", "vmap"}
        Key of :data:`FORMS`.
    seed : int
        Of all draws.
    """

    def __init__(self, network: Network, setting: Setting, form: str, seed: int = 0) -> None:
        self.network, self.setting, self.form = network, setting, form
        parameters = [tensor for pair in network for tensor in pair]
        self.optimizer = torch.optim.Adam(parameters, lr=setting.learning_rate)
        device = parameters[0].device
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, X: torch.Tensor) -> float:
        """Take one step and return the loss."""
        n_classes = len(self.network[-1][1])
        U = torch.empty(self.setting.n_uniform_samples, n_classes, device=X.device)
        U = U.exponential_(generator=self.generator)
        U = U / U.sum(1, keepdim=True)
        normals = draw_normals(self.network, self.setting.n_perturbations, self.generator)
        loss = textbook_loss(self.network, X, normals, U, self.setting, self.form)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return float(loss.detach())
