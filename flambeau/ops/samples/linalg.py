"""Samples of matrix products, linear algebra and Fourier transforms."""

from __future__ import annotations

from flambeau.ops.samples import Constant, Through, call, plain, samples, without


@samples("mm")
def mm(make):
    yield call(make(2, 3), make(3, 4))
    yield call(make.strided(2, 3), make.strided(3, 2))
    yield call(make(2, 0), make(0, 3))


@samples("_int_mm")
def int_mm(make):
    import flambeau as fl

    yield call(make(2, 3).to(fl.int8), make(3, 4).to(fl.int8))


@samples("bmm")
def bmm(make):
    yield call(make(2, 2, 3), make.strided(2, 3, 2))


@samples("mv")
def mv(make):
    yield call(make(2, 3), make(3))


@samples("dot", "vdot")
def dot(make):
    yield call(make(3), make(3))


@samples("matmul", "linalg_matmul")
def matmul(make):
    yield call(make(2, 3), make(3))
    yield call(make(3), make(3, 2))
    yield call(make(3), make(3))
    yield call(make(2, 1, 2, 3), make(3, 3, 2))
    yield call(make(2, 2, 3), make.strided(3, 2))


@samples("__rmatmul__")
def rmatmul(make):
    yield call(make(3, 2), make(2, 3))


@samples("addmm")
def addmm(make):
    yield call(make(2), make(3, 4), make(4, 2), beta=2, alpha=3)
    yield call(make(3, 2), make.strided(3, 4), make(4, 2))


@samples("addmv")
def addmv(make):
    yield call(make(2), make(2, 3), make(3), beta=2, alpha=3)


@samples("addbmm")
def addbmm(make):
    yield call(make(2, 2), make(3, 2, 3), make(3, 3, 2), beta=2, alpha=3)


@samples("baddbmm")
def baddbmm(make):
    yield call(make(2, 2), make(3, 2, 3), make(3, 3, 2), beta=2, alpha=3)


@samples("addr")
def addr(make):
    yield call(make(2, 3), make(2), make(3), beta=2, alpha=3)


@samples("outer", "ger")
def outer(make):
    yield call(make(2), make(3))


@samples("linear")
def linear(make):
    yield call(make(2, 2, 3), make(4, 3), make(4))
    yield call(make(3), make.strided(2, 3))
    yield call(make(2, 3), make(3))


@samples("nn_bilinear", "bilinear")
def bilinear(make):
    yield call(make(2, 2), make(2, 3), make(4, 2, 3), make(4))


@samples("linalg_multi_dot", "chain_matmul")
def multi_dot(make):
    yield call([make(2, 3), make(3, 1), make(1, 2)])


@samples("linalg_matrix_power", "matrix_power")
def matrix_power(make):
    for n in (3, 0, -2):
        yield call(make.matrix(), n)


@samples("linalg_cross", "cross", "linalg_vecdot")
def cross(make):
    yield call(make(2, 3), make(2, 3))


@samples("inner")
def inner(make):
    yield call(make(2, 3), make(4, 3))


@samples("tensordot")
def tensordot(make):
    yield call(make(2, 3, 2), make(3, 2, 2), 2)
    yield call(make(2, 3), make(2, 3), [[0], [0]])


@samples("kron")
def kron(make):
    yield call(make(2, 2), make(3))


@samples("einsum")
def einsum(make):
    yield call("ij,jk->ik", [make(2, 3), make(3, 2)])
    yield call("...ii->...i", [make(2, 3, 3)])
    yield call("i,j", [make(2), make(3)])


@samples("einsum.sublist")
def einsum_sublist(make):
    yield call(make(2, 3), [0, 1], make(3, 2), [1, 2], [0, 2])


@samples("grouped_mm")
def grouped_mm(make):
    import flambeau as fl

    yield call(Constant(make.real(2, 2, 8).to(fl.float32)), Constant(make.real(2, 8, 4).to(fl.float32)))


@samples("_cdist")
def cdist_kernel(make):
    yield call(make(3, 2), make(2, 2), 2.0, False)
    yield call(make(3, 2), make(2, 2), 1.5, False)


@samples("cdist")
def cdist(make):
    yield call(make(3, 2), make(2, 2), 2.0)
    yield call(make(3, 2), make(2, 2), 1.0)
    yield call(make(2, 2, 3), make(2, 1, 3), 3.0)


# ---------------------------------------------------------------- systems


@samples("linalg_inv", "linalg_inv_ex", "inverse", "_linalg_inv_ex", "linalg_det", "det", "linalg_slogdet",
         "slogdet", "matrix_exp", "linalg_matrix_exp", "linalg_lu_factor", "linalg_lu_factor_ex",
         "linalg_lu", "_lu_legacy")  # fmt: skip
def of_a_matrix(make):
    yield call(make.matrix())
    yield call(make.matrix(2))
    yield call(make.matrix(0))


def first(out):
    """Factors that come along have no derivative."""
    return out[0]


@samples("_linalg_det")
def det_kernel(make):
    yield call(make.matrix(2)).then(first)


@samples("_linalg_slogdet")
def slogdet_kernel(make):
    yield call(make.matrix(2)).then(lambda out: out[:2])


@samples("logdet")
def logdet(make):
    yield call(make.definite())


@samples("_linalg_lu_factor_ex")
def lu_factor(make):
    yield call(make.matrix(2), True)
    yield call(make(4, 3), True)
    yield call(make(2, 3), True)


@samples("_linalg_solve_ex")
def solve_ex(make):
    yield call(make.matrix(), make(3, 2), True).then(first)
    yield call(make.matrix(2), make(2, 3), False).then(first)


@samples("linalg_solve", "linalg_solve_ex")
def solve(make):
    yield call(make.matrix(), make(3, 2))
    yield call(make.matrix(2), make(3))
    yield call(make.matrix(), make(2, 3), left=False)


@samples("linalg_solve_triangular")
def solve_triangular(make):
    yield call(make.matrix(), make(3, 2), upper=True)
    yield call(make.matrix(2), make(2, 3), upper=False, left=False, unitriangular=True)


@samples("triangular_solve")
def triangular_solve(make):
    yield call(make(3, 2), make.matrix())


@samples("linalg_tensorinv")
def tensorinv(make):
    import flambeau as fl

    yield call((make.matrix(n=4) + fl.eye(4, dtype=make.dtype)).reshape(2, 2, 4), 2)


@samples("linalg_tensorsolve")
def tensorsolve(make):
    yield call(make.matrix(n=4).reshape(2, 2, 4), make(2, 2))


def _lu(make):
    import flambeau as fl

    LU, pivots = fl.linalg.lu_factor(make.matrix())
    return LU, pivots


@samples("lu_unpack")
def lu_unpack(make):
    yield call(*_lu(make))


@samples("linalg_lu_solve")
def linalg_lu_solve(make):
    yield call(*_lu(make), make(3, 2))
    yield call(*_lu(make), make(2, 3), left=False, adjoint=True)


@samples("lu_solve")
def lu_solve(make):
    yield call(make(3, 2), *_lu(make))


@samples("linalg_cholesky", "linalg_cholesky_ex", "cholesky")
def cholesky(make):
    yield call(make.definite())
    yield call(make.definite(2), upper=True)


@samples("_linalg_cholesky_ex")
def cholesky_ex(make):
    yield call(make.definite(), False)
    yield call(make.definite(2), True)


def _lower(x):
    """A factor of Cholesky's: lower, and real on the diagonal."""
    return x.tril(-1) + x.diagonal().real.diag() if x.is_complex() else x.tril()


@samples("cholesky_inverse")
def cholesky_inverse(make):
    yield call(Through(_lower, make.matrix()))
    yield call(Through(lambda x: _lower(x).mH, make.matrix()), True)


@samples("_cholesky_inverse")
def cholesky_inverse_kernel(make):
    yield call(Through(_lower, make.matrix()), False).then(first)


@samples("cholesky_solve")
def cholesky_solve(make):
    yield call(make(3, 2), make.matrix().tril())
    yield call(make(3, 2), make.matrix().triu(), True)


@samples("linalg_ldl_factor", "linalg_ldl_factor_ex")
def ldl_factor(make):
    yield call(Constant(plain(make.definite())))


@samples("_linalg_ldl_factor_ex")
def ldl_factor_kernel(make):
    yield call(Constant(plain(make.definite())), True)


@samples("linalg_ldl_solve")
def ldl_solve(make):
    import flambeau as fl

    LD, pivots = fl.linalg.ldl_factor(plain(make.definite()), hermitian=True)
    yield call(Constant(LD), pivots, make(3, 2), hermitian=True)


# ---------------------------------------------------------------- decompositions


@samples("linalg_householder_product")
def householder_product(make):
    yield call(make(4, 3), make(3))
    yield call(make(2, 3, 2), make(2, 2))


@samples("orgqr")
def orgqr(make):
    yield call(make(4, 3), make(3))


@samples("ormqr")
def ormqr(make):
    yield call(make(4, 3), make(3), make(4, 2))


@samples("geqrf")
def geqrf(make):
    yield call(make.constant(3, 2, low=None))


@samples("linalg_qr", "qr")
def qr(make):
    yield call(make.matrix())
    yield call(make.matrix(n=4)[:, :3])


def _without_phase(out):
    """What of singular vectors is determined: the values, and the products in which their phases cancel."""
    U, S, V = out[:3]
    k = S.shape[-1]
    first = V.mH[..., :k] if V.shape[-2] == k else V[..., :k]
    return S, U[..., :k].abs(), first.abs()


@samples("svd_lowrank", "pca_lowrank")
def svd_lowrank(make):
    """Approximations by random directions, which have a derivative where they are exact."""
    yield call(Constant(_distinct(make, 4, 3)), 2)


@samples("linalg_svd", "svd")
def svd(make):
    yield call(_distinct(make, 3, 2)).then(_without_phase)
    yield call(_distinct(make, 3, 3)).then(_without_phase)


@samples("linalg_svdvals")
def svdvals(make):
    yield call(_distinct(make, 3, 2))
    yield call(_distinct(make, 2, 3))


def _distinct(make, m, n):
    import flambeau as fl

    k = min(m, n)
    return make.real(m, n).to(make.dtype) * 0.2 + fl.diag(fl.arange(1, k + 1)).to(make.dtype).new_zeros(m, n).copy_(
        fl.eye(m, n) * fl.arange(1, n + 1)
    )


@samples("_linalg_svd")
def svd_kernel(make):
    yield call(_distinct(make, 3, 2), False, True).then(_without_phase)


@samples("_linalg_eigh")
def eigh_kernel(make):
    yield call(make.definite(), "L", True).then(lambda out: (out[0], out[1].abs()))


@samples("_linalg_eig")
def eig_kernel(make):
    yield call(_distinct(make, 3, 3), True).then(lambda out: (out[0], out[1].abs()))


@samples("linalg_eigvalsh", "linalg_eigvals")
def eigenvalues(make):
    yield call(make.definite())


@samples("linalg_eigh", "linalg_eig")
def eigh(make):
    yield call(make.definite()).then(lambda out: (out[0], out[1].abs()))


@samples("linalg_lstsq")
def lstsq(make):
    yield call(make.matrix(n=4)[:, :3], make(4, 2))
    yield call(make.matrix(2), make(2, 3, 2), driver="gels")


@samples("_linalg_lstsq")
def lstsq_kernel(make):
    x = make.matrix(n=4)[:, :3]
    driver = "gelsd" if x.is_cpu else "gels"  # the one that devices have
    yield call(x, make(4, 2), 1e-12, driver).then(lambda out: out[0][..., :3, :])


@samples("linalg_pinv.atol_rtol_float", "pinverse")
def pinv(make):
    yield call(make.matrix(n=4)[:, :3])
    yield call(make.matrix(2, n=4)[..., :2, :])


@samples("linalg_pinv.atol_rtol_tensor")
def pinv_tensor(make):
    yield call(make.matrix(), rtol=make.constant(low=1e-9, high=1e-8))


@samples("linalg_pinv")
def pinv_number(make):
    yield call(make.matrix(), 1e-9)


@samples("linalg_pinv.rcond_tensor")
def pinv_rcond(make):
    yield call(make.matrix(), make.constant(low=1e-9, high=1e-8))


@samples("_linalg_pinv")
def pinv_value(make):
    import flambeau as fl

    A = make.matrix()
    yield call(Constant(A), Constant(fl.linalg.inv(A)))


@samples("linalg_matrix_rank.atol_rtol_float", "linalg_cond")
def of_rank(make):
    yield call(make.matrix())


@samples("linalg_matrix_rank.atol_rtol_tensor")
def rank_tensor(make):
    yield call(make.matrix(), rtol=make.constant(low=1e-9, high=1e-8))


@samples("linalg_matrix_rank")
def rank_number(make):
    yield call(make.matrix(), 1e-9)


@samples("linalg_matrix_rank.tol_tensor")
def rank_tol(make):
    yield call(make.matrix(), make.constant(low=1e-9, high=1e-8))


@samples("linalg_cond.p_str")
def cond(make):
    yield call(make.matrix(), "fro")


@samples("linalg_matrix_norm")
def matrix_norm(make):
    for order in (1, float("inf"), 2, -2):
        yield call(make.matrix(), order)


@samples("linalg_matrix_norm.str_ord", "linalg_norm.ord_str")
def matrix_norm_named(make):
    yield call(make(2, 3), "fro")
    yield call(_distinct(make, 3, 2), "nuc")


@samples("nuclear_norm.dim")
def nuclear_norm(make):
    yield call(_distinct(make, 3, 2), [0, 1])


@samples("nuclear_norm")
def nuclear_norm_all(make):
    yield call(_distinct(make, 3, 2))


@samples("linalg_vander", "vander")
def vander(make):
    yield call(make(3))


without("an iteration towards eigenvectors, which has no exact result", "lobpcg")


@samples("_scaled_mm")
def scaled_products(make):
    import flambeau as fl

    a, b = make(4, 16).to(fl.float8_e4m3fn), make(16, 16).to(fl.float8_e5m2).t()
    one, rows, columns, bias = (make(*n, low=0.1).to(fl.float32) for n in ((), (4, 1), (1, 16), (16,)))
    for scales in ((one, one), (rows, columns)):
        yield call(*map(Constant, (a, b, *scales)), out_dtype=fl.float32)
        yield call(*map(Constant, (a, b, *scales, bias)), out_dtype=fl.float32)


without("compiled graphs call it, below derivatives; tests/ops/test_matmul.py", "_product_pitched")
without(
    "compiled graphs call it, below derivatives; tests/inductor/test_products.py",
    "_product_finished",
    "_product_packed",
)


# ---------------------------------------------------------------- Fourier transforms


@samples("_fft_c2c")
def fft_c2c(make):
    import flambeau as fl

    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [0, 1], 0.5, True)


@samples("_fft_r2c")
def fft_r2c(make):
    yield call(make.real(2, 5), [1], 0.5, True, True)


@samples("_fft_c2r")
def fft_c2r(make):
    import flambeau as fl

    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [1], 0.5, True, 4)
    yield call(fl.complex(make.real(2, 3), make.real(2, 3)), [0, 1], 0.5, False, 5)


@samples("_overlap_add")
def overlap_add(make):
    yield call(make(1, 3, 4), 2)


@samples("stft")
def stft(make):
    yield call(make.real(8), 4, return_complex=True)
    yield call(make.real(2, 8), 4, 2, window=make.real(4, low=0.4), return_complex=True)


@samples("istft")
def istft(make):
    import flambeau as fl

    yield call(fl.complex(make.real(3, 5), make.real(3, 5)), 4, window=make.real(4, low=0.4))
