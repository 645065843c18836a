"""Factorizations by primitives, on the reference device: orthogonal vectors, values as LAPACK's, and products that are the matrix."""

import pytest

import flambeau as fl
import flambeau.backends.reference

DTYPES = [fl.float64, fl.complex128]


def close(actual, expected):
    fl.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def orthogonal(vectors):
    close(vectors.mH @ vectors, fl.eye(vectors.shape[-1], dtype=vectors.dtype).expand(*vectors.shape[:-2], -1, -1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 6, 4)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values_of_matrices_without_full_rank(dtype, shape, full):
    fl.manual_seed(0)
    a = fl.randn(*shape, dtype=dtype)
    a[..., 0] = a[..., 1]
    u, values, vh = (t.cpu() for t in fl.linalg.svd(a.to("ref"), full_matrices=full))
    count = values.shape[-1]
    expected = fl.linalg.svd(a, full_matrices=full)
    assert (u.shape, vh.shape) == (expected[0].shape, expected[2].shape)
    close(values, expected[1])
    close((u[..., :count] * values.unsqueeze(-2).to(dtype)) @ vh[..., :count, :], a)
    orthogonal(u)
    orthogonal(vh.mH)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvectors_of_hermitian_matrices(dtype, triangle):
    fl.manual_seed(0)
    a = fl.randn(2, 5, 5, dtype=dtype)
    a = a + a.mH
    read = fl.tril(a) if triangle == "L" else fl.triu(a)
    values, vectors = (t.cpu() for t in fl.linalg.eigh(read.to("ref"), UPLO=triangle))
    close(values, fl.linalg.eigvalsh(a))
    close(a @ vectors, vectors * values.unsqueeze(-2).to(dtype))
    orthogonal(vectors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_systems_with_pivots(dtype):
    fl.manual_seed(0)
    a, b = fl.randn(3, 7, 7, dtype=dtype), fl.randn(3, 7, 2, dtype=dtype)
    a[:, 0, 0] = 0
    close(fl.linalg.solve(a.to("ref"), b.to("ref")).cpu(), fl.linalg.solve(a, b))
    close(fl.linalg.det(a.to("ref")).cpu(), fl.linalg.det(a))
    q, r = (t.cpu() for t in fl.linalg.qr(a.to("ref")))
    close(q @ r, a)
    orthogonal(q)
    low = fl.linalg.cholesky((a @ a.mH + fl.eye(7)).to("ref")).cpu()
    close(low @ low.mH, a @ a.mH + fl.eye(7))
