"""Linear systems and factorisations. Kernels report failure in `info`, as LAPACK does; the checks that raise are here."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, vjp
from flambeau.ops.values import all_values, may_hold

# ---------------------------------------------------------------- kernels

native("_linalg_lu_factor_ex(Tensor A, bool pivot) -> (Tensor LU, Tensor pivots, Tensor info)")
native("_linalg_solve_ex(Tensor A, Tensor B, bool left) -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)")
native("_linalg_inv_ex(Tensor A) -> (Tensor inverse, Tensor info)")
native("_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)")
native("_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)")
native("_linalg_cholesky_ex(Tensor A, bool upper) -> (Tensor L, Tensor info)")
native("_cholesky_inverse(Tensor self, bool upper) -> (Tensor inverse, Tensor info)")
native("_linalg_ldl_factor_ex(Tensor self, bool hermitian) -> (Tensor LD, Tensor pivots, Tensor info)")
native(
    "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True)"
    " -> (Tensor P, Tensor L, Tensor U)",
    out=True,
)
native("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor", out=True)
native("linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor", out=True)
native("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor", out=True)
native(
    "linalg_solve_triangular(Tensor A, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
    out=True,
)
native("matrix_exp(Tensor self) -> Tensor")


# ---------------------------------------------------------------- derivatives


@vjp("_linalg_inv_ex")
def inv_vjp(g0: fl.Tensor, inverse: fl.Tensor) -> fl.Tensor:
    adjoint = inverse.mH
    return -(adjoint @ g0 @ adjoint)


@vjp("_linalg_solve_ex")
def solve_vjp(
    g0: fl.Tensor, A: fl.Tensor, B: fl.Tensor, left: bool, result: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    grad_B = fl.linalg.solve(A.mH, g0, left=left)
    grad_A = None
    if needs[0]:
        grad_A = (-(grad_B @ result.mH) if left else -(result.mH @ grad_B)).sum_to_size(A.shape)
    return grad_A, grad_B.sum_to_size(B.shape) if needs[1] else None


@vjp("_linalg_det")
def det_vjp(g0: fl.Tensor, A: fl.Tensor, result: fl.Tensor) -> fl.Tensor:
    n = A.shape[-1]
    if n == 0:
        return fl.zeros_like(A)
    g = (g0 * result.conj()).reshape(*result.shape, 1, 1)
    if not may_hold(result == 0):
        return g * fl.linalg.inv(A).mH
    # A singular matrix still has cofactors: from its singular values, each left out in turn.
    U, S, Vh = fl.linalg.svd(A)
    one = fl.ones_like(S.narrow(-1, 0, 1))
    before = fl.cat([one, S.narrow(-1, 0, n - 1)], -1).cumprod(-1)
    after = fl.cat([one, S.narrow(-1, 1, n - 1).flip([-1])], -1).cumprod(-1).flip([-1])
    turn = (fl.linalg.det(U) * fl.linalg.det(Vh)).conj()
    return (g0 * turn).reshape(*result.shape, 1, 1) * ((U * (before * after).unsqueeze(-2)) @ Vh)


@vjp("_linalg_slogdet")
def slogdet_vjp(g0: fl.Tensor | None, g1: fl.Tensor | None, A: fl.Tensor, sign: fl.Tensor) -> fl.Tensor | None:
    factor = g1
    if A.is_complex() and g0 is not None:
        turn = fl.complex(fl.zeros_like(sign.real), -(g0.conj() * sign).imag)
        factor = turn if g1 is None else g1 + turn
    if factor is None:
        return None
    return factor.reshape(*factor.shape, 1, 1) * fl.linalg.inv(A).mH


def _half_diagonal(x: fl.Tensor) -> fl.Tensor:
    """The lower triangle with half of the diagonal."""
    return x.tril() - 0.5 * fl.diag_embed(x.diagonal(0, -2, -1))


@vjp("_linalg_cholesky_ex")
def cholesky_vjp(g0: fl.Tensor, upper: bool, L: fl.Tensor) -> fl.Tensor:
    if upper:
        L, g0 = L.mH, g0.mH
    inner = _half_diagonal(L.mH @ g0)
    left = fl.linalg.solve_triangular(L.mH, inner, upper=True)
    gradient = fl.linalg.solve_triangular(L, left, upper=False, left=False)
    return 0.5 * (gradient + gradient.mH)


@vjp("_cholesky_inverse")
def cholesky_inverse_vjp(g0: fl.Tensor, self: fl.Tensor, upper: bool, inverse: fl.Tensor) -> fl.Tensor:
    inner = inverse @ (g0 + g0.mH) @ inverse
    return -(self @ inner) if upper else -(inner @ self)


@vjp("_linalg_lu_factor_ex")
def lu_factor_vjp(g0: fl.Tensor, LU: fl.Tensor, pivots: fl.Tensor) -> fl.Tensor:
    m, n = LU.shape[-2:]
    k = min(m, n)
    P, L, U = fl.lu_unpack(LU, pivots)
    grad_L, grad_U = g0.narrow(-1, 0, k).tril(-1), g0.narrow(-2, 0, k).triu()
    L1, U1 = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    below, above = L1.mH @ grad_L.narrow(-2, 0, k), grad_U.narrow(-1, 0, k) @ U1.mH
    if n > k:
        below = below - grad_U.narrow(-1, k, n - k) @ U.narrow(-1, k, n - k).mH
    if m > k:
        above = above - L.narrow(-2, k, m - k).mH @ grad_L.narrow(-2, k, m - k)
    core = fl.linalg.solve_triangular(L1.mH, below.tril(-1) + above.triu(), upper=True, unitriangular=True)
    gradient = fl.linalg.solve_triangular(U1.mH, core, upper=False, left=False)
    if n > k:
        right = fl.linalg.solve_triangular(L1.mH, grad_U.narrow(-1, k, n - k), upper=True, unitriangular=True)
        gradient = fl.cat([gradient, right], -1)
    if m > k:
        lower = fl.linalg.solve_triangular(U1.mH, grad_L.narrow(-2, k, m - k), upper=False, left=False)
        gradient = fl.cat([gradient, lower], -2)
    return P @ gradient


@vjp("lu_unpack")
def lu_unpack_vjp(
    g0: fl.Tensor | None, g1: fl.Tensor | None, g2: fl.Tensor | None, LU_data_sizes: fl.Size
) -> tuple[fl.Tensor | None, ...]:
    m, n = LU_data_sizes[-2:]
    k = min(m, n)
    gradient = None
    if g1 is not None:
        gradient = fl.constant_pad_nd(g1.tril(-1), [0, n - k])
    if g2 is not None:
        upper = fl.constant_pad_nd(g2.triu(), [0, 0, 0, m - k])
        gradient = upper if gradient is None else gradient + upper
    return gradient, None


@vjp("linalg_lu_solve")
def lu_solve_vjp(
    g: fl.Tensor,
    LU: fl.Tensor,
    pivots: fl.Tensor,
    B: fl.Tensor,
    left: bool,
    adjoint: bool,
    out: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    grad_B = fl.linalg.lu_solve(LU, pivots, g, left=left, adjoint=not adjoint)
    grad_LU = None
    if needs[0]:
        P, L, U = fl.lu_unpack(LU, pivots)
        full = -(grad_B @ out.mH) if left else -(out.mH @ grad_B)
        if adjoint:
            full = full.mH
        turned = P.mH @ full
        grad_LU = ((turned @ U.mH).tril(-1) + (L.mH @ turned).triu()).sum_to_size(LU.shape)
    return grad_LU, None, grad_B.sum_to_size(B.shape) if needs[2] else None


@vjp("cholesky_solve")
def cholesky_solve_vjp(
    g: fl.Tensor, self: fl.Tensor, input2: fl.Tensor, upper: bool, out: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    grad_self = fl.cholesky_solve(g, input2, upper)
    grad_factor = None
    if needs[1]:
        full = -(grad_self @ out.mH)
        full = full + full.mH
        grad_factor = (input2 @ full if upper else full @ input2).sum_to_size(input2.shape)
        grad_factor = grad_factor.triu() if upper else grad_factor.tril()
    return grad_self.sum_to_size(self.shape) if needs[0] else None, grad_factor


@vjp("linalg_solve_triangular")
def solve_triangular_vjp(
    g: fl.Tensor,
    A: fl.Tensor,
    B: fl.Tensor,
    upper: bool,
    left: bool,
    unitriangular: bool,
    out: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    grad_B = fl.linalg.solve_triangular(A.mH, g, upper=not upper, left=left, unitriangular=unitriangular)
    grad_A = None
    if needs[0]:
        full = (-(grad_B @ out.mH) if left else -(out.mH @ grad_B)).sum_to_size(A.shape)
        grad_A = full.triu(int(unitriangular)) if upper else full.tril(-int(unitriangular))
    return grad_A, grad_B.sum_to_size(B.shape) if needs[1] else None


@vjp("linalg_ldl_solve")
def ldl_solve_vjp(g: fl.Tensor, LD: fl.Tensor, pivots: fl.Tensor, hermitian: bool) -> tuple[fl.Tensor | None, ...]:
    turned = fl.linalg.ldl_solve(LD if hermitian else LD.conj(), pivots, g, hermitian=hermitian)
    return None, None, turned


@vjp("matrix_exp")
def matrix_exp_vjp(g: fl.Tensor, self: fl.Tensor) -> fl.Tensor:
    """The exponential of [[A, G], [0, A]] holds the derivative of exp at A along G in its corner."""
    n = self.shape[-1]
    A = self.mH
    top = fl.cat([A, g], -1)
    bottom = fl.cat([fl.zeros_like(A), A], -1)
    return fl.matrix_exp(fl.cat([top, bottom], -2)).narrow(-2, 0, n).narrow(-1, n, n)


@composite(out=True)
def linalg_matrix_exp(self: fl.Tensor) -> fl.Tensor:
    return fl.matrix_exp(self)


# ---------------------------------------------------------------- failures


def raise_on(op: str, info: fl.Tensor, what: str) -> None:
    """Raises LinAlgError for the first matrix whose info is not zero."""
    info = all_values(info)
    if info.device.type == "meta" or info.numel() == 0:
        return
    codes = [int(info)] if info.dim() == 0 else info.flatten().tolist()
    for i, code in enumerate(codes):
        if code:
            where = f" (batch element {i})" if info.dim() else ""
            got, why = _explained(what, code)
            known = f"{op}: (Batch element {i}): " if info.dim() else f"{op}: "
            raise fl.linalg.LinAlgError(f"[{op}] expected {what}, got {got}{where}: {why}; {known}{_said(what, code)}")


def _said(what: str, code: int) -> str:
    """The words that programs for PyTorch look for."""
    if "invertible" in what:
        return f"The diagonal element {code} is zero, the inversion could not be completed because the input matrix is singular."
    if "positive" in what:
        minor = f"the leading minor of order {code} is not positive-definite"
        return f"The factorization could not be completed because the input is not positive-definite ({minor})."
    return (
        "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated values."
    )


def _explained(what: str, code: int) -> tuple[str, str]:
    """What a code of LAPACK says of a matrix: what it is, and why."""
    if "invertible" in what:
        why = f"pivot {code} of its factorization is zero, so that its rows are not independent; lstsq or pinv take it"
        return "a singular one", why
    if "positive" in what:
        why = f"its leading minor of order {code} is not positive; it may lack symmetry or need a larger diagonal"
        return "one that is not", why
    return "one whose do not", f"the iteration stopped (LAPACK reports {code}); look for NaN or infinity in the matrix"


# ---------------------------------------------------------------- inverses and systems


@composite("linalg_inv_ex", results="inverse info", out=True)
def inv_ex(A: fl.Tensor, *, check_errors: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    inverse, info = fl._ops._linalg_inv_ex(A)
    if check_errors:
        raise_on("linalg.inv_ex", info, "an invertible matrix")
    return inverse, info


@composite("linalg_inv", out=True)
def inv(A: fl.Tensor) -> fl.Tensor:
    inverse, info = fl._ops._linalg_inv_ex(A)
    raise_on("linalg.inv", info, "an invertible matrix")
    return inverse


@composite(out=True)
def inverse(self: fl.Tensor) -> fl.Tensor:
    return fl.linalg.inv(self)


def is_vector(A: fl.Tensor, B: fl.Tensor) -> bool:
    """Whether the right-hand side is a (batch of) vectors rather than of matrices."""
    return B.dim() == 1 or (A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1]))


def _solve(op: str, A: fl.Tensor, B: fl.Tensor, left: bool) -> tuple[fl.Tensor, fl.Tensor]:
    if A.dim() < 2 or A.size(-1) != A.size(-2):
        raise RuntimeError(
            f"[{op}] expected square matrices, got {tuple(A.shape)}: A must be batches of square matrices"
        )
    vector = is_vector(A, B)
    if vector and not left:
        raise RuntimeError(
            f"[{op}] expected a matrix on the right for left=False, got the vector shape {tuple(B.shape)}"
        )
    result, _, _, info = fl._ops._linalg_solve_ex(A, B.unsqueeze(-1) if vector else B, left)
    return (result.squeeze(-1) if vector else result), info


@composite("linalg_solve_ex", results="result info", out=True)
def solve_ex(
    A: fl.Tensor, B: fl.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    result, info = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        raise_on("linalg.solve_ex", info, "an invertible matrix")
    return result, info


@composite("linalg_solve", out=True)
def solve(A: fl.Tensor, B: fl.Tensor, *, left: bool = True) -> fl.Tensor:
    result, info = _solve("linalg.solve", A, B, left)
    raise_on("linalg.solve", info, "an invertible matrix")
    return result


@composite(results="solution cloned_coefficient", out=True)
def triangular_solve(
    self: fl.Tensor, A: fl.Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    if self.dim() < 2 or A.dim() < 2:
        raise RuntimeError(
            f"[triangular_solve] expected tensors of at least two dimensions, got {tuple(self.shape)} and {tuple(A.shape)}"
        )
    if A.size(-1) != A.size(-2) or A.size(-1) != self.size(-2):
        raise RuntimeError(
            f"[triangular_solve] expected shapes of a linear system, got {tuple(A.shape)} and {tuple(self.shape)}"
        )
    factor = A.transpose(-1, -2) if transpose else A
    solution = fl.linalg.solve_triangular(factor, self, upper=upper != transpose, unitriangular=unitriangular)
    return solution, A.to_dense().expand((*solution.shape[:-2], *A.shape[-2:])).clone()


@composite("linalg_tensorinv", out=True)
def tensorinv(self: fl.Tensor, ind: int = 2) -> fl.Tensor:
    if ind <= 0:
        raise RuntimeError(
            f"[linalg.tensorinv] expected a positive ind, got {ind}: Expected a strictly positive integer for 'ind'"
        )
    shape = tuple(self.shape)
    first, last = shape[:ind], shape[ind:]
    rows, cols = _product(first), _product(last)
    if rows != cols:
        raise RuntimeError(
            f"[linalg.tensorinv] expected prod(shape[:ind]) == prod(shape[ind:]), got {shape} with ind={ind}: Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind])"
        )
    return fl.linalg.inv(self.reshape(rows, cols)).reshape([*last, *first])


@composite("linalg_tensorsolve", out=True)
def tensorsolve(self: fl.Tensor, other: fl.Tensor, dims: list[int] | None = None) -> fl.Tensor:
    if dims is not None:
        ndim = self.dim()
        for d in dims:
            if not -ndim <= d < ndim:
                raise IndexError(f"[linalg.tensorsolve] expected dims in the range [{-ndim}, {ndim - 1}], got {d}")
        moved = [d % ndim for d in dims]
        self = self.permute([d for d in range(self.dim()) if d not in moved] + moved)
    shape = tuple(self.shape)[other.dim() :]
    size = _product(shape)
    if size != other.numel():
        raise RuntimeError(
            f"[linalg.tensorsolve] expected prod(A.shape[{other.dim()}:]) == {other.numel()}, got {tuple(self.shape)}"
        )
    return fl.linalg.solve(self.reshape(other.numel(), size), other.reshape(-1)).reshape(shape)


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


# ---------------------------------------------------------------- LU


@composite("linalg_lu_factor_ex", results="LU pivots info", out=True)
def lu_factor_ex(
    A: fl.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    factors = fl._ops._linalg_lu_factor_ex(A, pivot)
    if check_errors:
        raise_on("linalg.lu_factor_ex", factors[2], "a matrix of full rank")
    return factors


@composite("linalg_lu_factor", results="LU pivots", out=True)
def lu_factor(A: fl.Tensor, *, pivot: bool = True) -> tuple[fl.Tensor, fl.Tensor]:
    LU, pivots, info = fl._ops._linalg_lu_factor_ex(A, pivot)
    raise_on("linalg.lu_factor", info, "a matrix of full rank")
    return LU, pivots


@composite("linalg_lu", results="P L U", out=True)
def lu(A: fl.Tensor, *, pivot: bool = True) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    LU, pivots, _ = fl._ops._linalg_lu_factor_ex(A, pivot)
    return fl.lu_unpack(LU, pivots)


@composite("_lu_legacy", module="", public="lu")
def lu_legacy(self: fl.Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    LU, pivots, info = fl._ops._linalg_lu_factor_ex(self, pivot)
    if get_infos:
        return LU, pivots, info
    raise_on("lu", info, "a matrix of full rank")
    return LU, pivots


@composite(out=True)
def lu_solve(self: fl.Tensor, LU_data: fl.Tensor, LU_pivots: fl.Tensor) -> fl.Tensor:
    return fl.linalg.lu_solve(LU_data, LU_pivots, self)


# ---------------------------------------------------------------- determinants


@composite(out=True)
def linalg_det(A: fl.Tensor) -> fl.Tensor:
    return fl._ops._linalg_det(A)[0]


@composite()
def det(self: fl.Tensor) -> fl.Tensor:
    return fl._ops._linalg_det(self)[0]


@composite(results="sign logabsdet", out=True)
def linalg_slogdet(A: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    return tuple(fl._ops._linalg_slogdet(A))[:2]


@composite(results="sign logabsdet", out=True)
def slogdet(self: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    return tuple(fl._ops._linalg_slogdet(self))[:2]


@composite()
def logdet(self: fl.Tensor) -> fl.Tensor:
    sign, logabs, _, _ = fl._ops._linalg_slogdet(self)
    if self.is_complex():
        return fl.add(fl.log(sign), logabs)
    return fl.where(fl.eq(sign, -1), float("nan"), logabs)


# ---------------------------------------------------------------- Cholesky and LDL


@composite("linalg_cholesky_ex", results="L info", out=True)
def cholesky_ex(self: fl.Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    if check_errors:
        raise_on("linalg.cholesky_ex", info, "a positive-definite matrix")
    return factor, info


@composite(out=True)
def linalg_cholesky(self: fl.Tensor, *, upper: bool = False) -> fl.Tensor:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    raise_on("linalg.cholesky", info, "a positive-definite matrix")
    return factor


@composite(out=True)
def cholesky(self: fl.Tensor, upper: bool = False) -> fl.Tensor:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    raise_on("cholesky", info, "a positive-definite matrix")
    return factor


@composite(out=True)
def cholesky_inverse(self: fl.Tensor, upper: bool = False) -> fl.Tensor:
    inverse, info = fl._ops._cholesky_inverse(self, upper)
    raise_on("cholesky_inverse", info, "a triangular factor without zeros on the diagonal")
    return inverse


@composite("linalg_ldl_factor_ex", results="LD pivots info", out=True)
def ldl_factor_ex(
    self: fl.Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    factors = fl._ops._linalg_ldl_factor_ex(self, hermitian)
    if check_errors:
        raise_on("linalg.ldl_factor_ex", factors[2], "a matrix of full rank")
    return factors


@composite("linalg_ldl_factor", results="LD pivots", out=True)
def ldl_factor(self: fl.Tensor, *, hermitian: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    LD, pivots, info = fl._ops._linalg_ldl_factor_ex(self, hermitian)
    raise_on("linalg.ldl_factor", info, "a matrix of full rank")
    return LD, pivots


# ---------------------------------------------------------------- what passes know of these operators

autocast(
    "float32",
    "cholesky cholesky_inverse cholesky_solve inverse linalg_cholesky linalg_cholesky_ex linalg_inv linalg_inv_ex "
    "linalg_solve linalg_tensorinv linalg_tensorsolve lu_solve triangular_solve",
    on="cpu",
)
