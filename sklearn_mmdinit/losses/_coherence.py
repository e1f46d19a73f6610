r"""Coherence, L_coh: a spectral contrastive loss on normalised hidden activations.

This term is not the paper's; the docstring of ``Coherence`` says what it is for.

A perturbation of the last layer alone changes a logit at x by :math:`\epsilon_W \cdot h(x) +
\epsilon_b`, where h(x) are the n last hidden activations. Over the draws of epsilon, the changes at
two inputs i and j are Gaussian with

.. math:: \mathrm{Cov}_{ij} = s^2 \left( \frac{\langle h_i, h_j \rangle}{n} + \frac 1 d \right),
          \qquad C_{ij} = \frac{\mathrm{Cov}_{ij}}{\sqrt{\mathrm{Cov}_{ii} \mathrm{Cov}_{jj}}},

where s is the perturbation scale and d the number of classes. This is exact, because the last layer
is linear in its weights: nothing is sampled, and s cancels in C. Without a bias there is no 1 / d.
Gradient descent moves predictions by the neural tangent kernel. C is the last layer's part of this
kernel, normalised.
"""

from __future__ import annotations

import math
from numbers import Integral

import torch
from torch import nn

from .._base.environment import full_precision, in_single_precision
from ._shared import Piece, with_gradient

# Variances are at least this share of their mean. Without this, the variance of an input whose
# activations are all 0 would be 0.
_LEAST = 1e-6


@full_precision()
def logit_correlation(H: torch.Tensor, n_classes: int | None) -> torch.Tensor:
    """C, the correlation of a logit's changes at two inputs when the last layer is perturbed.

    It does not depend on the perturbation scale, and rotating the activations does not change it.
    If activations are multiplied by a large factor, C is near the cosine of their angle. If they
    are multiplied by a small factor, C is near 1, because then only the perturbation of the bias
    counts.

    Parameters
    ----------
    H : Tensor of shape (B, n_units)
        Activations of the last hidden layer: the inputs of the layer that gives the logits.
    n_classes : int or None
        Number of outputs of that layer, the paper's d. The perturbation of its bias depends on it.
        None: the layer has no learned bias.

    Returns
    -------
    Tensor of shape (B, B)
        The diagonal is 1. Without a bias, it is about 0 for an input whose activations are all 0.

    Raises
    ------
    ValueError
        If `H` or `n_classes` is not valid.

    Examples
    --------
    The first two inputs have activations of the same direction, the third of an orthogonal one:

    >>> import torch
    >>> from sklearn_mmdinit.losses import logit_correlation
    >>> H = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    >>> logit_correlation(H, n_classes=None).round()
    tensor([[1., 1., 0.],
            [1., 1., 0.],
            [0., 0., 1.]])
    """
    G = _directions(H, n_classes)
    return G @ G.mT


def _directions(H: torch.Tensor, n_classes: int | None) -> torch.Tensor:
    """Rows of length 1 whose products are C: scaled activations, with a column for the bias."""
    if H.ndim != 2 or not H.is_floating_point():
        shape = f"{H.dtype} of shape {tuple(H.shape)}"
        raise ValueError(f"H must be floats of shape (n_inputs, n_units), got {shape}")
    if not (n_classes is None or (isinstance(n_classes, Integral) and n_classes > 0)):
        got = repr(n_classes)
        if isinstance(n_classes, torch.Tensor):  # a second view, as other losses take it
            got = f"a tensor of shape {tuple(n_classes.shape)}; pass two views as torch.cat([a, b])"
        raise ValueError(f"n_classes must be a positive integer or None, got {got}")
    G = in_single_precision(H) / math.sqrt(H.shape[1])
    if n_classes is not None:
        G = torch.nn.functional.pad(G, (0, 1), value=1.0 / math.sqrt(n_classes))
    variance = G.square().sum(dim=1, keepdim=True)
    # Needed only if there is no bias: with a bias the variance is at least 1 / d.
    if n_classes is None:
        variance = torch.maximum(variance, _LEAST * variance.detach().mean() + _LEAST**2)
    # If squares overflow float32 this gives NaN, which the training reports; rsqrt would give 0.
    return G * (variance.sqrt() / variance)


@full_precision()
def coherence(H: torch.Tensor, n_classes: int | None, separation: float = 2.0) -> torch.Tensor:
    r"""L_coh: one minus C of positive pairs, plus the squares of C of all other pairs.

    .. math:: 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2].

    This is the spectral contrastive loss [1]_. With the two ends of random walks on a graph as
    positive pairs its minimiser spans the leading eigenfunctions of the walk; a larger separation
    :math:`\rho` keeps more of them. Two augmentations of each example are positive pairs as well.

    Parameters
    ----------
    H : Tensor of shape (2 n_pairs, n_units)
        Last hidden activations of the first inputs of at least two positive pairs, then those of
        the second inputs in the same order.
    n_classes : int or None
        As for :func:`logit_correlation`: outputs of the last layer; None if it has no learned bias.
    separation : float, default=2.0
        The weight :math:`\rho` of the pairs that are not positive.

    Returns
    -------
    Tensor, scalar
        Between 0 and ``1 + separation`` for activations that are not negative; differentiable
        once with respect to `H`.

    Raises
    ------
    ValueError
        If `H` has fewer than two pairs or an odd number of rows, or another argument is not valid.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.

    Examples
    --------
    In ``stay`` both inputs of a pair have the same direction. In ``cross`` the second inputs of the
    two pairs are exchanged:

    >>> import torch
    >>> from sklearn_mmdinit.losses import coherence
    >>> first = torch.eye(2)
    >>> stay, cross = (torch.cat([first, second]) for second in (first, first.flip(0)))
    >>> [f"{coherence(H, n_classes=None):.1f}" for H in (stay, cross)]
    ['0.0', '2.0']
    """
    G = _directions(H, n_classes)
    if len(H) % 2 or len(H) < 4:
        raise ValueError(
            f"H must have 2 n rows for n >= 2 positive pairs, got {len(H)}; pass "
            "torch.cat([first, second])"
        )
    n = len(H) // 2
    along = (G[:n] * G[n:]).sum(dim=1)
    # The 4 n^2 pairs include each input with itself (C = 1) and both orders of each positive pair.
    # These are subtracted.
    itself = G.square().sum(dim=1)
    between = _sum_of_squares(G) - itself.square().sum() - 2.0 * along.square().sum()
    return 1.0 - along.mean() + separation * between / (4.0 * n * (n - 1))


class CoherenceLoss(nn.Module):
    """L_coh of two views, as a module with the interface of other contrastive losses.

    Parameters
    ----------
    separation : float, default=2.0
        As for :func:`coherence`.
    n_classes : int or None, default=None
        None: pairs are compared by the cosine of their embeddings. The number of outputs of a last
        layer adds its bias, as :class:`~sklearn_mmdinit.MMDInitializer` does.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import CoherenceLoss
    >>> z1 = torch.eye(2)  # embeddings of the first views; of the second views: the same
    >>> f"{CoherenceLoss()(z1, z1):.1f}"
    '0.0'
    """

    def __init__(self, separation: float = 2.0, n_classes: int | None = None) -> None:
        super().__init__()
        self.separation = separation
        self.n_classes = n_classes

    def forward(self, z1: torch.Tensor, z2: torch.Tensor) -> torch.Tensor:
        """L_coh of the embeddings of two views.

        Parameters
        ----------
        z1, z2 : Tensor of shape (n, n_units)
            Embeddings of the first and of the second view of at least two examples.

        Returns
        -------
        Tensor, scalar
            As :func:`coherence` gives it.

        Raises
        ------
        RuntimeError, ValueError
            If `z1` and `z2` differ in their shape, or are not valid for :func:`coherence`.
        """
        return coherence(torch.stack([z1, z2]).flatten(0, 1), self.n_classes, self.separation)


def _sum_of_squares(G: torch.Tensor) -> torch.Tensor:
    """Sum of the squared entries of G G'. G' G has the same sum; the smaller one is computed."""
    rows = G if len(G) < G.shape[1] else G.mT

    def pieces_of(start: int, stop: int) -> list[Piece]:
        products = rows[start:stop] @ rows.mT
        return [(products.square().sum(dim=1), 4.0 * (products @ rows))]

    return with_gradient(rows, pieces_of, rows.numel() * len(rows)).sum()
