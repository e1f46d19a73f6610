r"""Coherence, L_coh: a spectral contrastive loss on centred hidden activations.

This term is not the paper's; the docstring of ``Coherence`` says what it is for.

A perturbation epsilon of the last layer's weights alone changes a logit at x by :math:`\epsilon
\cdot h(x)`, where h(x) are the last hidden activations. A bias changes the logits at all inputs
alike, so that only differences between inputs count. Less their means over the inputs, the changes
at i and j are Gaussian with the correlation

.. math:: C_{ij} = \frac{\langle h_i - \bar h, h_j - \bar h \rangle}
                        {\| h_i - \bar h \| \| h_j - \bar h \|} .

This is exact, because the last layer is linear in its weights: nothing is sampled, and the scale of
the perturbation cancels. Gradient descent moves predictions by the neural tangent kernel, of which
C is the last layer's part, centred and normalised. Without centring, the part that all activations
share can exceed their differences a hundredfold. In MLPs, whose units are sparse, it does not.
"""

from __future__ import annotations

import torch
from torch import nn

from .._base.environment import full_precision, in_single_precision
from .._base.validation import check_argument, numbers
from ._shared import Piece, with_gradient

# Variances are at least this share of their mean. Without this, the variance of an input whose
# activations are the mean would be 0.
_LEAST = 1e-6


@full_precision()
def logit_correlation(H: torch.Tensor) -> torch.Tensor:
    """Cosine similarity of centred activations of each two inputs: C of the coherence loss.

    It is the correlation of the changes of a logit at two inputs, relative to their mean, when the
    last layer is perturbed. Shifting, rotating or scaling the activations does not change it.

    Parameters
    ----------
    H : Tensor of shape (B, n_units)
        Activations of the last hidden layer: the inputs of the layer that gives the logits.

    Returns
    -------
    Tensor of shape (B, B)
        Between -1 and 1. The diagonal is 1, or about 0 for an input whose activations are the mean.

    Raises
    ------
    ValueError
        If `H` is not valid.

    Examples
    --------
    The activations of the first two inputs lie in one direction from the mean, those of the other
    two in the opposite direction:

    >>> import torch
    >>> from sklearn_mmdinit.losses import logit_correlation
    >>> H = torch.tensor([[4.0, 7.0], [3.0, 7.0], [1.0, 7.0], [0.0, 7.0]])
    >>> logit_correlation(H).round()
    tensor([[ 1.,  1., -1., -1.],
            [ 1.,  1., -1., -1.],
            [-1., -1.,  1.,  1.],
            [-1., -1.,  1.,  1.]])
    """
    G = _directions(H, centred=True)
    return G @ G.mT


def _directions(H: torch.Tensor, centred: bool) -> torch.Tensor:
    """Rows of norm 1 whose products are C."""
    if H.ndim != 2 or not H.is_floating_point():
        shape = f"{H.dtype} of shape {tuple(H.shape)}"
        raise ValueError(f"H must be floats of shape (n_inputs, n_units), got {shape}")
    G = in_single_precision(H)
    if centred:
        G = G - G.mean(dim=0)
    variance = G.square().sum(dim=1, keepdim=True)
    variance = torch.maximum(variance, _LEAST * variance.detach().mean() + _LEAST**2)
    # If squares overflow float32 this gives NaN, which the training reports; rsqrt would give 0.
    return G * (variance.sqrt() / variance)


@full_precision()
def coherence(H: torch.Tensor, separation: float = 2.0, centred: bool = True) -> torch.Tensor:
    r"""Spectral contrastive loss of positive pairs, on centred activations of unit norm (L_coh).

    .. math:: 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2].

    This is the spectral contrastive loss [1]_. With the two ends of random walks on a graph as
    positive pairs its minimiser spans the leading eigenfunctions of the walk; a larger separation
    :math:`\rho` keeps more of them. Two augmentations of each example are positive pairs as well.

    Parameters
    ----------
    H : Tensor of shape (2 n_pairs, n_units)
        Last hidden activations of the first inputs of at least two positive pairs, then those of
        the second inputs in the same order.
    separation : float, default=2.0
        The weight :math:`\rho` of the pairs that are not positive.
    centred : bool, default=True
        Whether the mean over the inputs is subtracted from the activations first. Without this,
        networks whose activations have much in common learn little, such as those that average
        over pixels. In MLPs, whose activations are sparse, it makes little difference.

    Returns
    -------
    Tensor, scalar
        Between 0 and ``2 + separation``, and 1 if the activations of an input say nothing about
        those of any other. Differentiable once with respect to `H`.

    Raises
    ------
    ValueError
        If `H` is not valid, has fewer than two pairs or an odd number of rows.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.

    Examples
    --------
    Two pairs are two opposite directions from their mean. In ``cross`` the second inputs of the two
    pairs are exchanged:

    >>> import torch
    >>> from sklearn_mmdinit.losses import coherence
    >>> first = torch.eye(2)
    >>> stay, cross = (torch.cat([first, second]) for second in (first, first.flip(0)))
    >>> [f"{coherence(H):.1f}" for H in (stay, cross)]
    ['2.0', '4.0']
    """
    G = _directions(H, centred)
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
    """Coherence loss of two views, as a module with the interface of other contrastive losses.

    Parameters
    ----------
    separation : float, default=2.0
        As for :func:`coherence`; not negative.

    Examples
    --------
    >>> import torch
    >>> from sklearn_mmdinit.losses import CoherenceLoss
    >>> z1 = torch.eye(8)  # embeddings of the first views; of the second views: the same
    >>> f"{CoherenceLoss()(z1, z1):.2f}"
    '0.04'
    """

    def __init__(self, separation: float = 2.0) -> None:
        super().__init__()
        check_argument("separation", separation, numbers(0))
        self.separation = separation

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
        ValueError
            If `z1` and `z2` differ in their shape, or are not valid for :func:`coherence`.
        """
        if z1.shape != z2.shape:
            raise ValueError(f"z1 and z2 must have one shape, got {[*z1.shape]} and {[*z2.shape]}")
        return coherence(torch.stack([z1, z2]).flatten(0, 1), self.separation)


def _sum_of_squares(G: torch.Tensor) -> torch.Tensor:
    """Sum of the squared entries of G G'. G' G has the same sum; the smaller one is computed."""
    rows = G if len(G) < G.shape[1] else G.mT

    def pieces_of(start: int, stop: int) -> list[Piece]:
        products = rows[start:stop] @ rows.mT
        return [(products.square().sum(dim=1), 4.0 * (products @ rows))]

    return with_gradient(rows, pieces_of, rows.numel() * len(rows)).sum()
