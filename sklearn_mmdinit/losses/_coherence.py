r"""L_coh: neighbours' predictions move together when the last layer is perturbed.

The paper asks that any prediction be near for each single input. This term, which is not the
paper's, says which functions of the inputs are to be near: those that change little along
the nearest-neighbour graph of the data, as the tasks that people set do.

A perturbation of the last layer alone moves a logit at x by :math:`\epsilon_W \cdot h(x) +
\epsilon_b`, where h(x) are the last hidden activations. Over epsilon that is Gaussian with

.. math:: \mathrm{Cov}_{ij} = s^2 \left( \frac{\langle h_i, h_j \rangle}{n} + \frac 1 d \right),
          \qquad C_{ij} = \frac{\mathrm{Cov}_{ij}}{\sqrt{\mathrm{Cov}_{ii} \mathrm{Cov}_{jj}}},

exactly, since the last layer is linear in its weights: nothing is sampled, and s cancels; without
a bias the second term is not there. C
is also the last layer's share of the tangent kernel, the one that fine-tuning follows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .._base.threads import run_on_threads

# Of the mean variance, below which one counts as none.
_LEAST = 1e-6


def coherence_kernel(H: torch.Tensor, n_biases: float) -> torch.Tensor:
    """C, the correlation of what perturbations of the last layer add to a logit.

    It is the same for every perturbation scale, for orthogonal maps of the activations, and,
    up to their order, for inputs in another order. For activations scaled up it tends to the
    cosine of their angle; scaled down, to 1, where the bias is all that is perturbed.

    Parameters
    ----------
    H : Tensor of shape (B, n)
        Activations of the last hidden layer.
    n_biases : float
        The paper's d, on which the standard deviation of the bias depends; infinity where the
        layer has no bias that is learned.

    Returns
    -------
    Tensor of shape (B, B)
        Of ones on the diagonal; without a bias about 0 for an input whose activations are.

    Examples
    --------
    Two inputs of one direction move together, one across it does not:

    >>> import math, torch
    >>> from sklearn_mmdinit.losses import coherence_kernel
    >>> H = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    >>> coherence_kernel(H, math.inf).round()
    tensor([[1., 1., 0.],
            [1., 1., 0.],
            [0., 0., 1.]])
    """
    G = _directions(H, n_biases)
    return G @ G.mT


def _directions(H: torch.Tensor, n_biases: float) -> torch.Tensor:
    """Rows whose products are C: activations and what the bias adds, of length 1."""
    G = H / math.sqrt(H.shape[1])
    if n_biases != math.inf:
        G = torch.nn.functional.pad(G, (0, 1), value=1.0 / math.sqrt(n_biases))
    variance = G.square().sum(dim=1, keepdim=True)
    if n_biases == math.inf:
        # With a bias it is 1 / d at least: no activation can make it vanish.
        variance = torch.maximum(variance, _LEAST * variance.detach().mean() + _LEAST**2)
    # Where squares are too large for float32 this is NaN, which is noticed; by rsqrt it would be 0.
    return G * (variance.sqrt() / variance)


def coherence(H: torch.Tensor, n_biases: float, separation: float = 2.0) -> torch.Tensor:
    r"""L_coh: one minus C along walks on the graph, plus its squares between walks.

    .. math:: 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2].

    This is the spectral contrastive loss [1]_ with a random walk in place of an augmentation:
    its minimiser spans the leading eigenfunctions of the walk, the more of them the larger the
    separation :math:`\rho` is.

    Parameters
    ----------
    H : Tensor of shape (2 n, n_units)
        Last hidden activations of the starts of n walks, then those of their ends, in the same
        order; n is at least 2.
    n_biases : float
        As for :func:`coherence_kernel`.
    separation : float, default=2.0
        The weight :math:`\rho` of the unrelated pairs.

    Returns
    -------
    Tensor, scalar
        Between 0 and ``1 + separation`` for activations that are not negative; differentiable by
        `H`, once.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.

    Examples
    --------
    Two walks that stay on an axis of their own, and two whose ends were taken for each other's:

    >>> import math, torch
    >>> from sklearn_mmdinit.losses import coherence
    >>> starts = torch.eye(2)
    >>> stay, cross = (torch.cat([starts, ends]) for ends in (starts, starts.flip(0)))
    >>> [f"{coherence(H, math.inf):.1f}" for H in (stay, cross)]
    ['0.0', '2.0']
    """
    n, G = len(H) // 2, _directions(H, n_biases)
    along = (G[:n] * G[n:]).sum(dim=1)
    # Of the 4 n^2 pairs those of an input with itself (C = 1) and with its own walk's other
    # end are left out, the latter in both orders.
    itself = G.square().sum(dim=1)
    between = _SumOfSquares.apply(G) - itself.square().sum() - 2.0 * along.square().sum()
    return 1.0 - along.mean() + separation * between / (4.0 * n * (n - 1))


class _SumOfSquares(torch.autograd.Function):
    """The sum of the squares of C = G G', of which the gradient alone is kept.

    It is that of the squares of G' G. The smaller one is taken, its columns divided among threads.
    """

    @staticmethod
    def forward(ctx: Any, G: torch.Tensor) -> torch.Tensor:
        A = G if G.shape[1] < len(G) else G.mT

        def stretch(start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
            products = A.mT @ A[:, start:stop]
            return products.square().sum(), A @ products

        sums, gradients = zip(
            *run_on_threads(A.shape[1], stretch, A.numel() * A.shape[1]), strict=True
        )
        gradient = 4.0 * torch.cat(gradients, dim=1)
        ctx.save_for_backward(gradient if A is G else gradient.mT)
        return torch.stack(sums).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0]
