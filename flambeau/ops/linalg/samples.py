"""Samples of linear systems and factorizations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ops.samples import Call, Constant, Make, Through, call, first, plain, samples


@samples("linalg_vector_norm")
def vector_norm(make: Make) -> Iterator[Call]:
    for order in (2, 1, 3.5, float("inf"), 0):
        yield call(make(2, 3), order, [1])
    yield call(make(2, 3))


@samples("linalg_norm")
def linalg_norm(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(3), 3)


@samples("linalg_diagonal")
def linalg_diagonal(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 3), offset=1)


@samples("linalg_inv", "linalg_inv_ex", "inverse", "_linalg_inv_ex", "linalg_det", "det", "linalg_slogdet",
         "slogdet", "matrix_exp", "linalg_matrix_exp", "linalg_lu_factor", "linalg_lu_factor_ex",
         "linalg_lu", "_lu_legacy")  # fmt: skip
def of_a_matrix(make: Make) -> Iterator[Call]:
    yield call(make.matrix())
    yield call(make.matrix(2))
    yield call(make.matrix(0))


@samples("_linalg_det")
def det_kernel(make: Make) -> Iterator[Call]:
    yield call(make.matrix(2)).then(first)


@samples("_linalg_slogdet")
def slogdet_kernel(make: Make) -> Iterator[Call]:
    yield call(make.matrix(2)).then(lambda out: out[:2])


@samples("logdet")
def logdet(make: Make) -> Iterator[Call]:
    yield call(make.definite())


@samples("_linalg_lu_factor_ex")
def lu_factor(make: Make) -> Iterator[Call]:
    yield call(make.matrix(2), True)
    yield call(make(4, 3), True)
    yield call(make(2, 3), True)


@samples("_linalg_solve_ex")
def solve_ex(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), make(3, 2), True).then(first)
    yield call(make.matrix(2), make(2, 3), False).then(first)


@samples("linalg_solve", "linalg_solve_ex")
def solve(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), make(3, 2))
    yield call(make.matrix(2), make(3))
    yield call(make.matrix(), make(2, 3), left=False)


@samples("linalg_solve_triangular")
def solve_triangular(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), make(3, 2), upper=True)
    yield call(make.matrix(2), make(2, 3), upper=False, left=False, unitriangular=True)


@samples("triangular_solve")
def triangular_solve(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make.matrix())


@samples("linalg_tensorinv")
def tensorinv(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call((make.matrix(n=4) + fl.eye(4, dtype=make.dtype)).reshape(2, 2, 4), 2)


@samples("linalg_tensorsolve")
def tensorsolve(make: Make) -> Iterator[Call]:
    yield call(make.matrix(n=4).reshape(2, 2, 4), make(2, 2))


def _lu(make: Make) -> Any:
    import flambeau as fl

    LU, pivots = fl.linalg.lu_factor(make.matrix())
    return LU, pivots


@samples("lu_unpack")
def lu_unpack(make: Make) -> Iterator[Call]:
    yield call(*_lu(make))


@samples("linalg_lu_solve")
def linalg_lu_solve(make: Make) -> Iterator[Call]:
    yield call(*_lu(make), make(3, 2))
    yield call(*_lu(make), make(2, 3), left=False, adjoint=True)


@samples("lu_solve")
def lu_solve(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), *_lu(make))


@samples("linalg_cholesky", "linalg_cholesky_ex", "cholesky")
def cholesky(make: Make) -> Iterator[Call]:
    yield call(make.definite())
    yield call(make.definite(2), upper=True)


@samples("_linalg_cholesky_ex")
def cholesky_ex(make: Make) -> Iterator[Call]:
    yield call(make.definite(), False)
    yield call(make.definite(2), True)


def _lower(x: Any) -> Any:
    """A factor of Cholesky's: lower, and real on the diagonal."""
    return x.tril(-1) + x.diagonal().real.diag() if x.is_complex() else x.tril()


@samples("cholesky_inverse")
def cholesky_inverse(make: Make) -> Iterator[Call]:
    yield call(Through(_lower, make.matrix()))
    yield call(Through(lambda x: _lower(x).mH, make.matrix()), True)


@samples("_cholesky_inverse")
def cholesky_inverse_kernel(make: Make) -> Iterator[Call]:
    yield call(Through(_lower, make.matrix()), False).then(first)


@samples("cholesky_solve")
def cholesky_solve(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make.matrix().tril())
    yield call(make(3, 2), make.matrix().triu(), True)


@samples("linalg_ldl_factor", "linalg_ldl_factor_ex")
def ldl_factor(make: Make) -> Iterator[Call]:
    yield call(Constant(plain(make.definite())))


@samples("_linalg_ldl_factor_ex")
def ldl_factor_kernel(make: Make) -> Iterator[Call]:
    yield call(Constant(plain(make.definite())), True)


@samples("linalg_ldl_solve")
def ldl_solve(make: Make) -> Iterator[Call]:
    import flambeau as fl

    LD, pivots = fl.linalg.ldl_factor(plain(make.definite()), hermitian=True)
    yield call(Constant(LD), pivots, make(3, 2), hermitian=True)


@samples("linalg_householder_product")
def householder_product(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), make(3))
    yield call(make(2, 3, 2), make(2, 2))


@samples("orgqr")
def orgqr(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), make(3))


@samples("ormqr")
def ormqr(make: Make) -> Iterator[Call]:
    yield call(make(4, 3), make(3), make(4, 2))


@samples("geqrf")
def geqrf(make: Make) -> Iterator[Call]:
    yield call(make.constant(3, 2, low=None))


@samples("linalg_qr", "qr")
def qr(make: Make) -> Iterator[Call]:
    yield call(make.matrix())
    yield call(make.matrix(n=4)[:, :3])


def _without_phase(out: Any) -> Any:
    """What of singular vectors is determined: the values, and the products in which their phases cancel."""
    U, S, V = out[:3]
    k = S.shape[-1]
    first = V.mH[..., :k] if V.shape[-2] == k else V[..., :k]
    return S, U[..., :k].abs(), first.abs()


def _approximation(out: Any) -> Any:
    """What is the same for any choice among vectors of equal singular values."""
    U, S, V = out
    return S, (U * S.unsqueeze(-2)) @ V.mH


@samples("svd_lowrank", "pca_lowrank")
def svd_lowrank(make: Make) -> Iterator[Call]:
    """Approximations by random directions, which have a derivative where they are exact."""
    yield call(Constant(_distinct(make, 4, 3)), 2).then(_approximation)


@samples("linalg_svd", "svd")
def svd(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 2)).then(_without_phase)
    yield call(_distinct(make, 3, 3)).then(_without_phase)


@samples("linalg_svdvals")
def svdvals(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 2))
    yield call(_distinct(make, 2, 3))


def _distinct(make: Make, m: Any, n: Any) -> Any:
    import flambeau as fl

    dtype = fl.int64 if make.dtype is fl.bool else make.dtype  # booleans would be equal
    return make.real(m, n).to(make.dtype) * 0.2 + fl.zeros(m, n, dtype=dtype).copy_(fl.eye(m, n) * fl.arange(1, n + 1))


@samples("_linalg_svd")
def svd_kernel(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 2), False, True).then(_without_phase)


@samples("_linalg_eigh")
def eigh_kernel(make: Make) -> Iterator[Call]:
    yield call(make.definite(), "L", True).then(lambda out: (out[0], out[1].abs()))


@samples("_linalg_eig")
def eig_kernel(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 3), True).then(lambda out: (out[0], out[1].abs()))


@samples("linalg_eigvalsh", "linalg_eigvals")
def eigenvalues(make: Make) -> Iterator[Call]:
    yield call(make.definite())


@samples("linalg_eigh", "linalg_eig")
def eigh(make: Make) -> Iterator[Call]:
    yield call(make.definite()).then(lambda out: (out[0], out[1].abs()))


@samples("linalg_lstsq")
def lstsq(make: Make) -> Iterator[Call]:
    yield call(make.matrix(n=4)[:, :3], make(4, 2))
    yield call(make.matrix(2), make(2, 3, 2), driver="gels")


@samples("_linalg_lstsq")
def lstsq_kernel(make: Make) -> Iterator[Call]:
    x = make.matrix(n=4)[:, :3]
    driver = "gelsd" if x.is_cpu else "gels"  # the one that devices have
    yield call(x, make(4, 2), 1e-12, driver).then(lambda out: out[0][..., :3, :])


@samples("linalg_pinv.atol_rtol_float", "pinverse")
def pinv(make: Make) -> Iterator[Call]:
    yield call(make.matrix(n=4)[:, :3])
    yield call(make.matrix(2, n=4)[..., :2, :])


@samples("linalg_pinv.atol_rtol_tensor")
def pinv_tensor(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), rtol=make.constant(low=1e-9, high=1e-8))


@samples("linalg_pinv")
def pinv_number(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), 1e-9)


@samples("linalg_pinv.rcond_tensor")
def pinv_rcond(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), make.constant(low=1e-9, high=1e-8))


@samples("_linalg_pinv")
def pinv_value(make: Make) -> Iterator[Call]:
    import flambeau as fl

    A = make.matrix()
    yield call(Constant(A), Constant(fl.linalg.inv(A)))


@samples("linalg_matrix_rank.atol_rtol_float", "linalg_cond")
def of_rank(make: Make) -> Iterator[Call]:
    yield call(make.matrix())


@samples("linalg_matrix_rank.atol_rtol_tensor")
def rank_tensor(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), rtol=make.constant(low=1e-9, high=1e-8))


@samples("linalg_matrix_rank")
def rank_number(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), 1e-9)


@samples("linalg_matrix_rank.tol_tensor")
def rank_tol(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), make.constant(low=1e-9, high=1e-8))


@samples("linalg_cond.p_str")
def cond(make: Make) -> Iterator[Call]:
    yield call(make.matrix(), "fro")


@samples("linalg_matrix_norm")
def matrix_norm(make: Make) -> Iterator[Call]:
    for order in (1, float("inf"), 2, -2):
        yield call(make.matrix(), order)


@samples("linalg_matrix_norm.str_ord", "linalg_norm.ord_str")
def matrix_norm_named(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), "fro")
    yield call(_distinct(make, 3, 2), "nuc")


@samples("nuclear_norm.dim")
def nuclear_norm(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 2), [0, 1])


@samples("nuclear_norm")
def nuclear_norm_all(make: Make) -> Iterator[Call]:
    yield call(_distinct(make, 3, 2))


@samples("linalg_vander", "vander")
def vander(make: Make) -> Iterator[Call]:
    yield call(make(3))


samples.without("an iteration towards eigenvectors, which has no exact result", "lobpcg")
