"""Linear systems and factorisations. Kernels report failure in `info`, as LAPACK does; the checks that raise are here."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import composite, native

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


@composite("linalg_matrix_exp(Tensor self) -> Tensor", out=True)
def linalg_matrix_exp(self: fl.Tensor) -> fl.Tensor:
    return fl.matrix_exp(self)


# ---------------------------------------------------------------- failures


def raise_on(op: str, info: fl.Tensor, what: str) -> None:
    """Raises LinAlgError for the first matrix whose info is not zero."""
    if info.device.type == "meta" or info.numel() == 0:
        return
    codes = [int(info)] if info.dim() == 0 else info.flatten().tolist()
    for i, code in enumerate(codes):
        if code:
            where = f" (batch element {i})" if info.dim() else ""
            raise fl.linalg.LinAlgError(f"[{op}] expected {what}, got one for which LAPACK reports {code}{where}")


# ---------------------------------------------------------------- inverses and systems


@composite("linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", out=True)
def inv_ex(A: fl.Tensor, *, check_errors: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    inverse, info = fl._ops._linalg_inv_ex(A)
    if check_errors:
        raise_on("linalg.inv_ex", info, "an invertible matrix")
    return inverse, info


@composite("linalg_inv(Tensor A) -> Tensor", out=True)
def inv(A: fl.Tensor) -> fl.Tensor:
    inverse, info = fl._ops._linalg_inv_ex(A)
    raise_on("linalg.inv", info, "an invertible matrix")
    return inverse


@composite("inverse(Tensor self) -> Tensor", out=True)
def inverse(self: fl.Tensor) -> fl.Tensor:
    return fl.linalg.inv(self)


def is_vector(A: fl.Tensor, B: fl.Tensor) -> bool:
    """Whether the right-hand side is a (batch of) vectors rather than of matrices."""
    return B.dim() == 1 or (A.dim() - 1 == B.dim() and tuple(B.shape) == tuple(A.shape[:-1]))


def _solve(op: str, A: fl.Tensor, B: fl.Tensor, left: bool) -> tuple[fl.Tensor, fl.Tensor]:
    if A.dim() < 2 or A.size(-1) != A.size(-2):
        raise RuntimeError(f"[{op}] expected square matrices, got {tuple(A.shape)}")
    vector = is_vector(A, B)
    if vector and not left:
        raise RuntimeError(
            f"[{op}] expected a matrix on the right for left=False, got the vector shape {tuple(B.shape)}"
        )
    result, _, _, info = fl._ops._linalg_solve_ex(A, B.unsqueeze(-1) if vector else B, left)
    return (result.squeeze(-1) if vector else result), info


@composite(
    "linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
    out=True,
)
def solve_ex(
    A: fl.Tensor, B: fl.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    result, info = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        raise_on("linalg.solve_ex", info, "an invertible matrix")
    return result, info


@composite("linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor", out=True)
def solve(A: fl.Tensor, B: fl.Tensor, *, left: bool = True) -> fl.Tensor:
    result, info = _solve("linalg.solve", A, B, left)
    raise_on("linalg.solve", info, "an invertible matrix")
    return result


@composite(
    "triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)"
    " -> (Tensor solution, Tensor cloned_coefficient)",
    out=True,
)
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
    return solution, A.expand(solution.shape[:-2] + A.shape[-2:]).clone()


@composite("linalg_tensorinv(Tensor self, int ind=2) -> Tensor", out=True)
def tensorinv(self: fl.Tensor, ind: int = 2) -> fl.Tensor:
    if ind <= 0:
        raise RuntimeError(f"[linalg.tensorinv] expected a positive ind, got {ind}")
    shape = tuple(self.shape)
    first, last = shape[:ind], shape[ind:]
    rows, cols = _product(first), _product(last)
    if rows != cols:
        raise RuntimeError(
            f"[linalg.tensorinv] expected prod(shape[:ind]) == prod(shape[ind:]), got {shape} with ind={ind}"
        )
    return fl.linalg.inv(self.reshape(rows, cols)).reshape([*last, *first])


@composite("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor", out=True)
def tensorsolve(self: fl.Tensor, other: fl.Tensor, dims: Any = None) -> fl.Tensor:
    if dims is not None:
        moved = [d % self.dim() for d in dims]
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


@composite(
    "linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)"
    " -> (Tensor LU, Tensor pivots, Tensor info)",
    out=True,
)
def lu_factor_ex(
    A: fl.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    factors = fl._ops._linalg_lu_factor_ex(A, pivot)
    if check_errors:
        raise_on("linalg.lu_factor_ex", factors[2], "a matrix of full rank")
    return factors


@composite("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", out=True)
def lu_factor(A: fl.Tensor, *, pivot: bool = True) -> tuple[fl.Tensor, fl.Tensor]:
    LU, pivots, info = fl._ops._linalg_lu_factor_ex(A, pivot)
    raise_on("linalg.lu_factor", info, "a matrix of full rank")
    return LU, pivots


@composite("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", out=True)
def lu(A: fl.Tensor, *, pivot: bool = True) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    LU, pivots, _ = fl._ops._linalg_lu_factor_ex(A, pivot)
    return fl.lu_unpack(LU, pivots)


@composite("_lu_legacy(Tensor self, bool pivot=True, bool get_infos=False) -> any", module="", public="lu")
def lu_legacy(self: fl.Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    LU, pivots, info = fl._ops._linalg_lu_factor_ex(self, pivot)
    if get_infos:
        return LU, pivots, info
    raise_on("lu", info, "a matrix of full rank")
    return LU, pivots


@composite("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", out=True)
def lu_solve(self: fl.Tensor, LU_data: fl.Tensor, LU_pivots: fl.Tensor) -> fl.Tensor:
    return fl.linalg.lu_solve(LU_data, LU_pivots, self)


# ---------------------------------------------------------------- determinants


@composite("linalg_det(Tensor A) -> Tensor", out=True)
def linalg_det(A: fl.Tensor) -> fl.Tensor:
    return fl._ops._linalg_det(A)[0]


@composite("det(Tensor self) -> Tensor")
def det(self: fl.Tensor) -> fl.Tensor:
    return fl._ops._linalg_det(self)[0]


@composite("linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)", out=True)
def linalg_slogdet(A: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    return tuple(fl._ops._linalg_slogdet(A))[:2]


@composite("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)", out=True)
def slogdet(self: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    return tuple(fl._ops._linalg_slogdet(self))[:2]


@composite("logdet(Tensor self) -> Tensor")
def logdet(self: fl.Tensor) -> fl.Tensor:
    sign, logabs, _, _ = fl._ops._linalg_slogdet(self)
    if self.is_complex():
        return fl.add(fl.log(sign), logabs)
    return fl.where(fl.eq(sign, -1), float("nan"), logabs)


# ---------------------------------------------------------------- Cholesky and LDL


@composite(
    "linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)", out=True
)
def cholesky_ex(self: fl.Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    if check_errors:
        raise_on("linalg.cholesky_ex", info, "a positive-definite matrix")
    return factor, info


@composite("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", out=True)
def linalg_cholesky(self: fl.Tensor, *, upper: bool = False) -> fl.Tensor:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    raise_on("linalg.cholesky", info, "a positive-definite matrix")
    return factor


@composite("cholesky(Tensor self, bool upper=False) -> Tensor", out=True)
def cholesky(self: fl.Tensor, upper: bool = False) -> fl.Tensor:
    factor, info = fl._ops._linalg_cholesky_ex(self, upper)
    raise_on("cholesky", info, "a positive-definite matrix")
    return factor


@composite("cholesky_inverse(Tensor self, bool upper=False) -> Tensor", out=True)
def cholesky_inverse(self: fl.Tensor, upper: bool = False) -> fl.Tensor:
    inverse, info = fl._ops._cholesky_inverse(self, upper)
    raise_on("cholesky_inverse", info, "a triangular factor without zeros on the diagonal")
    return inverse


@composite(
    "linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False)"
    " -> (Tensor LD, Tensor pivots, Tensor info)",
    out=True,
)
def ldl_factor_ex(
    self: fl.Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    factors = fl._ops._linalg_ldl_factor_ex(self, hermitian)
    if check_errors:
        raise_on("linalg.ldl_factor_ex", factors[2], "a matrix of full rank")
    return factors


@composite("linalg_ldl_factor(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)", out=True)
def ldl_factor(self: fl.Tensor, *, hermitian: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    LD, pivots, info = fl._ops._linalg_ldl_factor_ex(self, hermitian)
    raise_on("linalg.ldl_factor", info, "a matrix of full rank")
    return LD, pivots
