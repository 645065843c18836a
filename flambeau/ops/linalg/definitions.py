"""Definitions of linear systems and factorizations in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops.linalg import eliminations
from flambeau.ops.rules import definition

definition.without(
    "eigenvectors of general matrices, or pivots of two columns, for which devices have a library",
    "_linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "_linalg_eig",
    "_linalg_lstsq",
    "_linalg_pinv",
)


def _stepwise(name: str) -> Callable[[Any], Any]:
    """Decorator: a definition with a few calls for each column. They are too many for a graph: while one is recorded the
    operator stays whole."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def make(first: Any, *args: Any, **kwargs: Any) -> Any:
            return NotImplemented if first.is_meta else function(first, *args, **kwargs)

        definition(name)(make)
        return function

    return register


@_stepwise("_linalg_lu_factor_ex")
def lu_factor(A: Any, pivot: bool) -> Any:
    return eliminations.lu(A, pivot)


@_stepwise("_linalg_solve_ex")
def solve_ex(A: Any, B: Any, left: bool) -> Any:
    factors, pivots, info = eliminations.lu(A)
    if left:
        x = eliminations.lu_solve(factors, pivots, B)
    else:
        x = eliminations.lu_solve(factors, pivots, B.mH, adjoint=True).mH
    return x, factors, pivots, info


@_stepwise("_linalg_inv_ex")
def inv_ex(A: Any) -> Any:
    factors, pivots, info = eliminations.lu(A)
    return eliminations.lu_solve(factors, pivots, eliminations.identity(A.shape[-1], A)), info


@_stepwise("_linalg_det")
def det(A: Any) -> Any:
    factors, pivots, _ = eliminations.lu(A)
    return eliminations.diagonal(factors).prod(-1) * eliminations.sign_of(pivots), factors, pivots


@_stepwise("_linalg_slogdet")
def slogdet(A: Any) -> Any:
    factors, pivots, _ = eliminations.lu(A)
    entries = eliminations.diagonal(factors)
    sign = entries.sgn().prod(-1) * eliminations.sign_of(pivots)
    return sign, entries.abs().log().sum(-1), factors, pivots


@_stepwise("_linalg_cholesky_ex")
def cholesky_ex(A: Any, upper: bool) -> Any:
    return eliminations.cholesky(A, upper)


@_stepwise("_cholesky_inverse")
def cholesky_inverse(self: Any, upper: bool) -> Any:
    factor = fl.triu(self) if upper else fl.tril(self)
    inverse = eliminations.cholesky_solve(eliminations.identity(self.shape[-1], self), factor, upper)
    return inverse, eliminations.first_failure(eliminations.diagonal(factor) == 0)


@_stepwise("cholesky_solve")
def cholesky_solve(self: Any, input2: Any, upper: bool = False) -> Any:
    return eliminations.cholesky_solve(self, input2, upper)


@_stepwise("linalg_solve_triangular")
def solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    if left:
        return eliminations.solve_triangular(A, B, upper, unitriangular)
    return eliminations.solve_triangular(A.mT, B.mT, not upper, unitriangular).mT


@_stepwise("lu_unpack")
def lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    none = fl.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    permutation = low = high = none
    if unpack_data:
        one = fl.eye(m, k, dtype=LU_data.dtype, device=LU_data.device)
        low, high = fl.tril(LU_data[..., :k], -1) + one, fl.triu(LU_data[..., :k, :])
    if unpack_pivots:
        order = eliminations.order_of(LU_pivots, m)
        rows = fl.arange(m, device=LU_data.device)
        permutation = (rows.unsqueeze(-1) == order.unsqueeze(-2)).to(LU_data.dtype)
    return permutation, low, high


@_stepwise("linalg_lu_solve")
def lu_solve(LU: Any, pivots: Any, B: Any, *, left: bool = True, adjoint: bool = False) -> Any:
    if left:
        return eliminations.lu_solve(LU, pivots, B, adjoint)
    return eliminations.lu_solve(LU, pivots, B.mH, not adjoint).mH


@_stepwise("geqrf")
def geqrf(self: Any) -> Any:
    return eliminations.geqrf(self)


@_stepwise("linalg_householder_product")
def householder_product(input: Any, tau: Any) -> Any:
    return eliminations.householder_product(input, tau)


@_stepwise("ormqr")
def ormqr(self: Any, input2: Any, input3: Any, left: bool = True, transpose: bool = False) -> Any:
    q = eliminations.householder_product(self, input2, self.shape[-2])
    q = q.mH if transpose else q
    return q @ input3 if left else input3 @ q


@_stepwise("linalg_qr")
def qr(A: Any, mode: str = "reduced") -> Any:
    return eliminations.qr(A, mode)


@_stepwise("_linalg_eigh")
def eigh(A: Any, UPLO: str, compute_v: bool) -> Any:
    values, vectors = eliminations.eigh(A if UPLO.upper() == "L" else A.mH)
    info = fl.zeros(A.shape[:-2], dtype=fl.int32, device=A.device)
    return values, vectors if compute_v else fl.empty(0, dtype=A.dtype, device=A.device), info


@_stepwise("_linalg_svd")
def svd(A: Any, full_matrices: bool, compute_uv: bool) -> Any:
    u, values, vh = eliminations.svd(A, full_matrices)
    info = fl.zeros(A.shape[:-2], dtype=fl.int32, device=A.device)
    if not compute_uv:
        u, vh = (fl.empty(0, dtype=A.dtype, device=A.device) for _ in range(2))
    return u, values, vh, info


def _coefficients(degree: int) -> list[float]:
    """Of the diagonal Padé approximant of the exponential."""
    coefficients = [1.0]
    for j in range(1, degree + 1):
        coefficients.append(coefficients[-1] * (degree - j + 1) / ((2 * degree - j + 1) * j))
    return coefficients


@definition("matrix_exp")
def matrix_exp(self: Any) -> Any:
    """A Padé approximant after scaling by a power of two, undone by squaring. Matrices of a batch are squared as often
    as the largest of them asks for; those that are done stay as they are."""
    if self.numel() == 0:
        return fl.empty_like(self, memory_format=fl.contiguous_format)
    if self.dtype in (fl.float16, fl.bfloat16):
        return matrix_exp(self.float()).to(self.dtype)
    single = self.dtype in (fl.float32, fl.complex64)
    degree, limit = (7, 3.9) if single else (13, 5.3)
    norm = self.abs().sum(-2).amax(-1)
    finite = norm.isfinite()
    squarings = fl.where(finite, (norm / limit).log2().ceil(), fl.zeros_like(norm)).clamp_min(0)
    x = self * fl.exp2(-squarings)[..., None, None].to(self.dtype)
    one = fl.eye(self.shape[-1], dtype=self.dtype, device=self.device).expand_as(self)
    square = x @ x
    c = _coefficients(degree)
    even, odd, power = c[0] * one + c[2] * square, c[1] * one + c[3] * square, square
    for j in range(4, degree + 1, 2):
        power = power @ square
        even, odd = even + c[j] * power, odd + c[j + 1] * power
    odd = x @ odd
    result = fl.linalg.solve_ex(even - odd, even + odd)[0]
    for done in range(int(squarings.max().item())):
        result = fl.where((squarings > done)[..., None, None], result @ result, result)
    return fl.where(finite[..., None, None], result, fl.full_like(result, float("nan")))
