"""Cholesky factors of matrices that may be singular, and what inverts them."""

from __future__ import annotations

import torch

__all__ = ["inverse_factor", "semidefinite_cholesky"]

# A pivot below this fraction of its diagonal entry is rounding: the row is a combination of
# the rows before it. Float32 products of a few hundred terms are good to about 1e-6.
_PIVOT_TOLERANCE = 4e-6

# Larger than the pivots that rounding leaves: no root of a negative number.
_RIDGE = 1e-5
# What a row of zeros gets, of the largest entry of the diagonal and beyond: a pivot all the same.
_LEAST = 1e-10, 1e-30


def semidefinite_cholesky(C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Cholesky factor of matrices that may be singular.

    Covariances are singular when inputs repeat, when a layer is dead on several inputs, or
    when the batch is larger than the layer. The plain factorisation serves where it holds.
    Elsewhere a vanishing pivot sets its column to zero, which gives dependent rows exactly
    their combination of the earlier ones, with no jitter added to any matrix.

    To learn which matrices are singular would make the caller wait for another device than
    the CPU. There each diagonal entry is raised by 1e-5 of itself instead.

    Parameters
    ----------
    C : Tensor of shape (n, B, B)
        Positive semi-definite matrices.

    Returns
    -------
    L : Tensor of shape (n, B, B)
        Lower triangular with L L^T = C up to rounding.
    independent : Tensor of shape (n, B), bool, or None
        Which rows have a pivot of their own; None where all have.
    """
    if C.device.type != "cpu":
        return regularised_cholesky(C), None
    L, info = torch.linalg.cholesky_ex(C)
    floor = C.diagonal(dim1=-2, dim2=-1) * _PIVOT_TOLERANCE
    # Where the plain factorisation broke down L is not a factor and its diagonal says nothing.
    independent = (L.diagonal(dim1=-2, dim2=-1).square() > floor) & (info == 0)[:, None]
    if bool(independent.all()):
        return L, None
    singular = ~independent.all(dim=1)
    L[singular], independent[singular] = _pivot_by_pivot(C[singular], floor[singular])
    return L, independent


def regularised_cholesky(C: torch.Tensor) -> torch.Tensor:
    """Cholesky factor of C with 1e-5 of its diagonal added: no branch depends on the values."""
    diagonal = C.diagonal(dim1=-2, dim2=-1)
    least = diagonal.amax(dim=-1, keepdim=True) * _LEAST[0] + _LEAST[1]
    return torch.linalg.cholesky_ex(C + torch.diag_embed(diagonal * _RIDGE + least))[0]


def _pivot_by_pivot(C: torch.Tensor, floor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rest = C.clone()
    L = torch.zeros_like(C)
    independent = torch.zeros(C.shape[:2], dtype=torch.bool, device=C.device)
    for j in range(C.shape[-1]):
        pivot = rest[:, j, j]
        independent[:, j] = pivot > floor[:, j]
        root = torch.where(independent[:, j], pivot, torch.ones_like(pivot)).sqrt()
        column = rest[:, j:, j] / root[:, None] * independent[:, j, None]
        L[:, j:, j] = column
        rest[:, j:, j:] -= column[:, :, None] * column[:, None, :]
    return L, independent


def inverse_factor(L: torch.Tensor, independent: torch.Tensor | None) -> torch.Tensor:
    """Inverse of L on the independent rows, 0 for the others.

    The noise of a dependent row follows from the rows before it, and adds nothing to what
    they say of epsilon.
    """
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    if independent is None:
        return torch.linalg.solve_triangular(L, identity, upper=False)
    factor = L + torch.diag_embed((~independent).to(L.dtype))
    inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
    return inverse * independent[:, :, None]
