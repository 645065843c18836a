"""Shape rules of linear systems and factorizations."""

from __future__ import annotations

from flambeau.ops.geometry import NOTHING, Geometry, Int, Ints, broadcast, equal_sizes, of_self
from flambeau.ops.rules import shape
from flambeau.ops.symbolic.numbers import sym_max, sym_min

shape("matrix_exp")(of_self)


def parts(a: Geometry) -> tuple[Ints, Int, Int]:
    """Batch, rows and columns."""
    return a.sizes[:-2], a.sizes[-2], a.sizes[-1]


def square(a: Geometry, what: str) -> tuple[Ints, Int]:
    batch, rows, columns = parts(a)
    return batch, equal_sizes(rows, columns, what)


@shape("_linalg_lu_factor_ex")
def lu_factor(A: Geometry) -> list[Ints]:
    batch, m, n = parts(A)
    return [A.sizes, (*batch, sym_min(m, n)), batch]


@shape("_linalg_inv_ex")
def inverse(A: Geometry) -> list[Ints]:
    batch, n = square(A, "inv")
    return [(*batch, n, n), batch]


@shape("_linalg_cholesky_ex")
def cholesky(A: Geometry) -> list[Ints]:
    return inverse(A)


@shape("_cholesky_inverse")
def cholesky_inverse(self: Geometry) -> list[Ints]:
    return inverse(self)


@shape("_linalg_ldl_factor_ex")
def ldl_factor(self: Geometry) -> list[Ints]:
    batch, n = square(self, "ldl_factor")
    return [(*batch, n, n), (*batch, n), batch]


@shape("_linalg_det")
def det(A: Geometry) -> list[Ints]:
    batch, n = square(A, "det")
    return [batch, (*batch, n, n), (*batch, n)]


@shape("_linalg_slogdet")
def slogdet(A: Geometry) -> list[Ints]:
    batch, n = square(A, "slogdet")
    return [batch, batch, (*batch, n, n), (*batch, n)]


@shape("geqrf")
def geqrf(self: Geometry) -> list[Ints]:
    batch, m, n = parts(self)
    return [self.sizes, (*batch, sym_min(m, n))]


@shape("linalg_qr")
def qr(A: Geometry, mode: str) -> list[Ints]:
    batch, m, n = parts(A)
    inner = m if mode == "complete" else sym_min(m, n)
    return [NOTHING if mode == "r" else (*batch, m, inner), (*batch, inner, n)]


@shape("_linalg_svd")
def svd(A: Geometry, full_matrices: bool, compute_uv: bool) -> list[Ints]:
    batch, m, n = parts(A)
    k = sym_min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    u, vh = ((*batch, m, left), (*batch, right, n)) if compute_uv else (NOTHING, NOTHING)
    return [u, (*batch, k), vh, batch]


@shape("_linalg_eigh", "_linalg_eig")
def eig(A: Geometry, compute_v: bool) -> list[Ints]:
    batch, n = square(A, "eig")
    return [(*batch, n), (*batch, n, n) if compute_v else NOTHING, batch]


@shape("lu_unpack")
def lu_unpack(LU_data: Geometry, unpack_data: bool, unpack_pivots: bool) -> list[Ints]:
    batch, m, n = parts(LU_data)
    k = sym_min(m, n)
    lower, upper = ((*batch, m, k), (*batch, k, n)) if unpack_data else (NOTHING, NOTHING)
    return [(*batch, m, m) if unpack_pivots else NOTHING, lower, upper]


@shape("linalg_householder_product")
def householder_product(input: Geometry) -> Ints:
    return input.sizes


@shape("ormqr")
def ormqr(input3: Geometry) -> Ints:
    return input3.sizes


@shape("_linalg_pinv")
def pinv(A: Geometry) -> Ints:
    batch, m, n = parts(A)
    return (*batch, n, m)


def solved(A: Geometry, B: Geometry, left: bool) -> Ints:
    """The shape of X in A @ X = B, or in X @ A = B."""
    batch, n = square(A, "solve")
    other, rows, columns = parts(B)
    equal_sizes(n, rows if left else columns, "solve")
    return (*broadcast(batch, other), rows, columns)


@shape("_linalg_solve_ex")
def solve(A: Geometry, B: Geometry, left: bool) -> list[Ints]:
    batch, n = square(A, "solve")
    return [solved(A, B, left), (*batch, n, n), (*batch, n), batch]


@shape("linalg_solve_triangular")
def solve_triangular(A: Geometry, B: Geometry, left: bool) -> Ints:
    return solved(A, B, left)


@shape("linalg_lu_solve")
def lu_solve(LU: Geometry, B: Geometry, left: bool) -> Ints:
    return solved(LU, B, left)


@shape("linalg_ldl_solve")
def ldl_solve(LD: Geometry, B: Geometry) -> Ints:
    return solved(LD, B, True)


@shape("cholesky_solve")
def cholesky_solve(self: Geometry, input2: Geometry) -> Ints:
    return solved(input2, self, True)


@shape("_linalg_lstsq")
def lstsq(A: Geometry, B: Geometry, driver: str) -> list[Ints]:
    batch, m, n = parts(A)
    other, rows, columns = parts(B)
    equal_sizes(m, rows, "lstsq")
    batch = broadcast(batch, other)
    ranked, valued = driver != "gels", driver in ("gelsd", "gelss")
    solution = (*batch, sym_max(m, n), columns)
    return [solution, batch if ranked else NOTHING, (*batch, sym_min(m, n)) if valued else NOTHING, batch]
