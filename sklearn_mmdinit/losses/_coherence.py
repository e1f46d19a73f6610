r"""Coherence, L_coh: a spectral contrastive loss, on nearly non-negative features after a ReLU.

This term is not the paper's; the docstring of ``Coherence`` says what it is for.

Let h be the last hidden activations of an input. Its feature vector is h minus the mean over the
inputs; C is the cosine similarity:

.. math:: g_i = \mathrm{LeakyReLU}_a (h_i - \bar h), \qquad
          C_{ij} = \frac{\langle g_i, g_j \rangle}{\| g_i \| \| g_j \|} .

The part that all activations share can exceed their differences a hundredfold, for instance in
networks that average over pixels; it does not count here. The slope a is 1, but 0.2 if no
activation is negative, as after a ReLU. Then a value below the mean only says that a unit is off.
Two features that are hardly ever negative are orthogonal only if no unit is on in both, so that
units come to mark clusters of inputs. With a slope of 0, activations below the mean would have no
gradient.
"""

from __future__ import annotations

import torch
from torch import nn

from .._base.environment import full_precision, in_single_precision
from .._base.validation import check_argument, numbers
from ._shared import Piece, with_gradient

# Slope below the mean after a ReLU, chosen among 0, 0.1, 0.2, 0.3 and 1 on held-out images.
_SLOPE = 0.2
# Squared norms are at least this share of their mean. Without this, the norm of an input whose
# activations are the mean would be 0.
_LEAST = 1e-6


@full_precision()
def coherence(H: torch.Tensor, separation: float = 2.0) -> torch.Tensor:
    r"""Spectral contrastive loss of positive pairs (L_coh).

    .. math:: 1 - E_i [C_{i i^+}] + \rho \, E_{i \not\sim j} [C_{ij}^2].

    :math:`C_{ij}` is the cosine similarity of :math:`h_i - \bar h` and :math:`h_j - \bar h`, where
    h are activations and :math:`\bar h` is their mean over the inputs. If no activation is
    negative, as after a ReLU, negative entries of the differences are first multiplied by 0.2. This
    is the spectral contrastive loss [1]_; after a ReLU the factor keeps the differences nearly
    non-negative [2]_. With the two ends of random walks on a graph as positive pairs, its minimiser
    describes the clusters of the graph; a larger separation :math:`\rho` tells more of them apart.
    Two augmentations of each example may serve as pairs instead.

    Parameters
    ----------
    H : Tensor of shape (2 n_pairs, n_units)
        Last hidden activations of the first inputs of at least two positive pairs, then those of
        the second inputs in the same order.
    separation : float, default=2.0
        The weight :math:`\rho` of the pairs that are not positive.

    Returns
    -------
    Tensor, scalar
        Between 0 and ``2 + separation``, and 1 if the activations are constant. Differentiable once
        with respect to `H`.

    Raises
    ------
    ValueError
        If `H` is not valid, has fewer than two pairs or an odd number of rows.

    References
    ----------
    .. [1] J. Z. HaoChen, C. Wei, A. Gaidon and T. Ma, "Provable Guarantees for
       Self-Supervised Deep Learning with Spectral Contrastive Loss", arXiv 2106.04156, 2021.
    .. [2] Y. Wang, Q. Zhang, Y. Guo and Y. Wang, "Non-negative Contrastive Learning",
       arXiv 2403.12459, 2024.

    Examples
    --------
    Four pairs, each with a unit of its own. In ``cross`` the second inputs are exchanged:

    >>> import torch
    >>> from sklearn_mmdinit.losses import coherence
    >>> first = torch.eye(4)
    >>> stay, cross = (torch.cat([first, second]) for second in (first, first.flip(0)))
    >>> [f"{coherence(H):.1f}" for H in (stay, cross)]
    ['0.0', '1.5']
    """
    if H.ndim != 2 or not H.is_floating_point():
        shape = f"{H.dtype} of shape {tuple(H.shape)}"
        raise ValueError(f"H must be floats of shape (n_inputs, n_units), got {shape}")
    if len(H) % 2 or len(H) < 4:
        raise ValueError(
            f"H must have 2 n rows for n >= 2 positive pairs, got {len(H)}; pass "
            "torch.cat([first, second])"
        )
    H = in_single_precision(H)
    mean = H.mean(dim=0)
    G = H - mean
    slope = torch.where(H.detach().amin() >= 0.0, H.new_full((), _SLOPE), 1.0)
    G = G.relu().lerp(G, slope)
    squares = G.square().sum(dim=1, keepdim=True)
    least = _LEAST * squares.mean() + _LEAST**2 * (1.0 + mean.square().sum())
    floored = torch.maximum(squares, least.detach())
    # If squares overflow float32 this gives NaN, which the training reports; rsqrt would give 0.
    G = G * (floored.sqrt() / floored)
    n, (first, second) = len(H) // 2, G.chunk(2)
    along = (first * second).sum(dim=1)
    # The 4 n^2 pairs include each input with itself (C = 1) and both orders of each positive pair.
    # These are subtracted.
    itself = squares / floored
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
    >>> z1 = torch.eye(8)  # embeddings of the first views, and also of the second ones
    >>> f"{CoherenceLoss()(z1, z1):.2f}"
    '0.01'
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
            raise ValueError(f"z1 and z2 need the same shape, got {[*z1.shape]} and {[*z2.shape]}")
        return coherence(torch.stack([z1, z2]).flatten(0, 1), self.separation)


def _sum_of_squares(G: torch.Tensor) -> torch.Tensor:
    """Sum of the squared entries of G G', as the inner product of G and G G' G."""

    def in_one_piece(*_: int) -> list[Piece]:
        products = torch.linalg.multi_dot([G, G.mT, G])
        return [((G * products).sum(dim=1), 4.0 * products)]

    return with_gradient(G, in_one_piece, 0).sum()
