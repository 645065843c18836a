"""Randomised and iterative decompositions of large matrices: low-rank SVD, PCA, extreme eigenpairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.linalg.factorizations import adjoint
from flambeau.ops.record import composite


def approximate_basis(A: fl.Tensor, q: int, niter: int, M: fl.Tensor | None) -> fl.Tensor:
    """Orthonormal columns that approximate the range of A - M, by subspace iteration from random vectors."""
    dtype = A.dtype if A.is_floating_point() or A.is_complex() else fl.get_default_dtype()

    def apply(matrix: fl.Tensor, x: fl.Tensor) -> fl.Tensor:
        return fl.matmul(matrix.to(dtype), x)

    shift = None if M is None else M.expand(A.shape)
    A = A if shift is None else fl.sub(A.to(dtype), shift.to(dtype))
    Q = fl.linalg.qr(apply(A, fl.randn((*A.shape[:-2], A.size(-1), q), dtype=dtype, device=A.device)))[0]
    for _ in range(niter):
        Q = fl.linalg.qr(apply(adjoint(A), Q))[0]
        Q = fl.linalg.qr(apply(A, Q))[0]
    return Q


@composite()
def svd_lowrank(
    A: fl.Tensor, q: int | None = 6, niter: int | None = 2, M: fl.Tensor | None = None
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    q = 6 if q is None else q
    m, n = A.shape[-2:]
    if M is not None:
        M = M.expand(A.shape)
    # The smaller side is the one that is sampled.
    flipped = m < n
    if flipped:
        A = adjoint(A)
        M = None if M is None else adjoint(M)
    Q = approximate_basis(A, q, 2 if niter is None else niter, M)
    centred = A if M is None else fl.sub(A, M)
    U, S, Vh = fl.linalg.svd(fl.matmul(adjoint(Q), centred.to(Q.dtype)), full_matrices=False)
    V = adjoint(Vh)
    U = fl.matmul(Q, U)
    return (V, S, U) if flipped else (U, S, V)


@composite()
def pca_lowrank(
    A: fl.Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"[pca_lowrank] expected q between 0 and {min(m, n)}, got {q}")
    if niter < 0:
        raise ValueError(f"[pca_lowrank] expected niter that is not negative, got {niter}")
    if not center:
        return fl.svd_lowrank(A, q, niter)
    A = A.to_dense()  # without its means it has few zeros
    return fl.svd_lowrank(fl.sub(A, fl.mean(A, -2, keepdim=True)), q, niter)


@composite(
    "lobpcg(Tensor A, int? k=None, Tensor? B=None, Tensor? X=None, int? n=None, Tensor? iK=None, int? niter=None,"
    " float? tol=None, bool? largest=None, str? method=None, any? tracker=None, any? ortho_iparams=None,"
    " any? ortho_fparams=None, any? ortho_bparams=None) -> (Tensor, Tensor)"
)
def lobpcg(
    A: fl.Tensor,
    k: int | None = None,
    B: fl.Tensor | None = None,
    X: fl.Tensor | None = None,
    n: int | None = None,
    iK: fl.Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    *rest: Any,
) -> Sequence[fl.Tensor]:
    """The k largest (or smallest) eigenpairs of A x = w B x. The dense problem is solved directly, to full accuracy."""
    A, B = A.to_dense(), None if B is None else B.to_dense()
    if k is None:
        k = 1 if X is None else X.size(-1)
    size = A.size(-1)
    if A.dim() < 2 or A.size(-2) != size:
        raise ValueError(f"[lobpcg] expected square matrices, got {tuple(A.shape)}")
    if size < 3 * k:
        raise ValueError(f"[lobpcg] expected a matrix of at least {3 * k} rows for {k} eigenpairs, got {size}")
    if B is None:
        values, vectors = fl.linalg.eigh(A)
    else:
        L = fl.linalg.cholesky(B)
        half = fl.linalg.solve_triangular(L, A, upper=False)
        values, y = fl.linalg.eigh(adjoint(fl.linalg.solve_triangular(L, adjoint(half), upper=False)))
        vectors = fl.linalg.solve_triangular(adjoint(L), y, upper=True)
    if largest is None or largest:
        return fl.flip(values.narrow(-1, size - k, k), [-1]), fl.flip(vectors.narrow(-1, size - k, k), [-1])
    return values.narrow(-1, 0, k), vectors.narrow(-1, 0, k)
