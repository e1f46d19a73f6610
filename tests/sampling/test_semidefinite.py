"""Factors of matrices that may be singular, and what inverts them."""

import pytest
import torch

from sklearn_mmdinit._sampling.semidefinite import (
    inverse_factor,
    regularised_cholesky,
    semidefinite_cholesky,
)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_semidefinite_cholesky(rank):
    A = torch.randn(10, 6, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    C = A @ A.mT
    L, independent = semidefinite_cholesky(C)
    assert torch.allclose(L @ L.mT, C, atol=1e-5)
    if rank == 6:
        assert independent is None, "all rows have a pivot of their own"
    else:
        assert (independent.sum(1) == rank).all()
    assert torch.equal(L, L.tril())


def test_singular_matrices_leave_the_regular_ones_beside_them_alone():
    A = torch.randn(4, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A[2, :, 3:] = 0
    C = A @ A.mT
    L, independent = semidefinite_cholesky(C)
    regular = [0, 1, 3]
    assert independent.sum(1).tolist() == [5, 5, 3, 5]
    assert torch.equal(L[regular], torch.linalg.cholesky(C[regular]))
    assert torch.allclose(L @ L.mT, C, atol=1e-10)
    inverse = inverse_factor(L, independent)
    eye = torch.eye(5, dtype=C.dtype).expand(3, -1, -1)
    assert torch.allclose(inverse[regular] @ L[regular], eye, atol=1e-9)
    assert not inverse[2, ~independent[2]].any()


@pytest.mark.parametrize("rank", [1, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regularised_cholesky(rank, dtype):
    # The form of other devices: whatever the rank, a factor close to one of C and no NaN.
    A = torch.randn(50, 6, rank, dtype=dtype, generator=torch.Generator().manual_seed(0))
    C = A @ A.mT
    L = regularised_cholesky(C)
    bound = 2e-5 * C.diagonal(dim1=-2, dim2=-1).amax(1)
    assert ((L @ L.mT - C).abs().amax((1, 2)) < bound).all()
    assert inverse_factor(L, None).isfinite().all()


@pytest.mark.parametrize("zeros", [[0], [5], [1, 2], range(6)])
def test_regularised_cholesky_of_rows_of_zeros(zeros):
    # Of a dead layer without a bias, or of blank rows.
    A = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1))
    A[:, list(zeros)] = 0.0
    C = A @ A.mT
    L = regularised_cholesky(C)
    assert ((L @ L.mT - C).abs() <= 2e-5 * C.diagonal(dim1=-2, dim2=-1).max() + 1e-30).all()
    inverse = inverse_factor(L, None)
    assert inverse.isfinite().all()
    # What a row adds to a gradient is its inverse times itself.
    assert (inverse @ A).isfinite().all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_factorisation_that_broke_down_is_never_taken_for_one(scale):
    # Rows that repeat, in float32, where the pivots that fail are rounding of any sign.
    for seed in range(10):
        H = torch.randn(16, 20, generator=torch.Generator().manual_seed(seed)) * scale
        H = H[torch.arange(32) // 2]
        C = (H @ H.mT)[None]
        L, independent = semidefinite_cholesky(C)
        assert independent.sum() == 16
        assert float((L @ L.mT - C).abs().max() / C.abs().max()) < 1e-5
