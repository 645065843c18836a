"""Orthogonal and spectral decompositions, and what is computed from them: least squares, pseudo-inverse, rank, norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.linalg.records import is_vector, raise_on
from flambeau.ops.record import autocast, composite, native, vjp
from flambeau.ops.recording import without_data
from flambeau.ops.retrace import retrace
from flambeau.ops.values import all_values

native("geqrf(Tensor self) -> (Tensor a, Tensor tau)", out=True)
native("linalg_householder_product(Tensor input, Tensor tau) -> Tensor", out=True)
native("ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor", out=True)
native("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)", out=True)
native("_linalg_svd(Tensor A, bool full_matrices, bool compute_uv) -> (Tensor U, Tensor S, Tensor Vh, Tensor info)")
native("_linalg_eigh(Tensor A, str UPLO, bool compute_v) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)")
native("_linalg_eig(Tensor A, bool compute_v) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)")
native(
    "_linalg_lstsq(Tensor A, Tensor B, float rcond, str driver)"
    " -> (Tensor solution, Tensor rank, Tensor singular_values, Tensor info)"
)
# The value of the pseudo-inverse of A, computed already, with the derivative of one of constant rank.
native("_linalg_pinv(Tensor A, Tensor value) -> Tensor")


# ---------------------------------------------------------------- derivatives


def _both(x: fl.Tensor) -> fl.Tensor:
    """x plus its adjoint, with the diagonal counted once."""
    diagonal = x.diagonal(0, -2, -1)
    whole = x + x.mH
    return whole - fl.diag_embed(
        fl.complex(diagonal.real, fl.zeros_like(diagonal.real)) if x.is_complex() else diagonal
    )


def _skew(x: fl.Tensor) -> fl.Tensor:
    return x - x.mH


def _gaps(values: fl.Tensor) -> fl.Tensor:
    """values[j] - values[i], with ones on the diagonal."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    return gaps + fl.diag_embed(fl.ones_like(values))


@vjp("linalg_qr")
def qr_vjp(
    g0: fl.Tensor | None, g1: fl.Tensor | None, A: fl.Tensor, mode: str, Q: fl.Tensor, R: fl.Tensor
) -> fl.Tensor:
    m, n = A.shape[-2:]
    if mode == "r":
        raise RuntimeError(
            "[linalg.qr] expected Q to be computed, got mode='r', which has no derivative; use mode='reduced'"
        )
    if mode == "complete" and m > n:
        raise RuntimeError(
            "[linalg.qr] expected at least as many columns as rows with mode='complete', which otherwise has no derivative"
        )
    if m >= n:
        return _square_qr(g0, g1, Q, R)
    # A = [X | Y] with X square: R = [U | Q^H Y].
    U = R.narrow(-1, 0, m)
    Y = A.narrow(-1, m, n - m)
    grad_Q, grad_U, grad_Y = g0, None, fl.zeros_like(Y)
    if g1 is not None:
        grad_U, grad_V = g1.narrow(-1, 0, m), g1.narrow(-1, m, n - m)
        grad_Y = Q @ grad_V
        extra = Y @ grad_V.mH
        grad_Q = extra if grad_Q is None else grad_Q + extra
    return fl.cat([_square_qr(grad_Q, grad_U, Q, U), grad_Y], -1)


def _square_qr(grad_Q: fl.Tensor | None, grad_R: fl.Tensor | None, Q: fl.Tensor, R: fl.Tensor) -> fl.Tensor:
    inner = None
    if grad_R is not None:
        inner = grad_R @ R.mH
    if grad_Q is not None:
        turned = Q.mH @ grad_Q
        inner = -turned if inner is None else inner - turned
    gradient = Q @ _both(inner.triu())  # type: ignore[union-attr]
    if grad_Q is not None:
        gradient = gradient + grad_Q
    return fl.linalg.solve_triangular(R.mH, gradient, upper=False, left=False)


@vjp("_linalg_svd")
def svd_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    g2: fl.Tensor | None,
    A: fl.Tensor,
    compute_uv: bool,
    U: fl.Tensor,
    S: fl.Tensor,
    Vh: fl.Tensor,
) -> fl.Tensor:
    if not compute_uv:
        U, S, Vh = fl.linalg.svd(A, full_matrices=False)
        return (U * g1.unsqueeze(-2)) @ Vh  # type: ignore[union-attr]
    m, n = A.shape[-2:]
    k = min(m, n)
    U, Vh = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k)
    grad_U = None if g0 is None else g0.narrow(-1, 0, k)
    grad_Vh = None if g2 is None else g2.narrow(-2, 0, k)
    if grad_U is None and grad_Vh is None:
        return None if g1 is None else (U * g1.unsqueeze(-2)) @ Vh  # type: ignore[return-value]
    V = Vh.mH
    gaps = _gaps(S * S)
    row, column = S.unsqueeze(-2), S.unsqueeze(-1)
    core = None
    if grad_U is not None:
        turned = U.mH @ grad_U
        core = _skew(turned) / gaps * row
        if A.is_complex():
            spin = turned.diagonal(0, -2, -1).imag / S
            core = core + fl.diag_embed(fl.complex(fl.zeros_like(spin), spin))
    if grad_Vh is not None:
        other = column * (_skew(V.mH @ grad_Vh.mH) / gaps)
        core = other if core is None else core + other
    if g1 is not None:
        core = core + fl.diag_embed(g1)
    gradient = U @ core
    if grad_U is not None and m > k:
        rest = grad_U / row
        gradient = gradient + rest - U @ (U.mH @ rest)
    gradient = gradient @ Vh
    if grad_Vh is not None and n > k:
        rest = grad_Vh / column
        gradient = gradient + U @ (rest - (rest @ V) @ Vh)
    return gradient


@vjp("_linalg_eigh")
def eigh_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    A: fl.Tensor,
    UPLO: str,
    compute_v: bool,
    eigenvalues: fl.Tensor,
    eigenvectors: fl.Tensor,
) -> fl.Tensor:
    if not compute_v:
        eigenvalues, eigenvectors = fl.linalg.eigh(A, UPLO)
    V = eigenvectors
    if g1 is None:
        return (V * g0.unsqueeze(-2)) @ V.mH  # type: ignore[union-attr]
    core = (V.mH @ g1) / _gaps(eigenvalues)
    core = core - fl.diag_embed(core.diagonal(0, -2, -1))
    if g0 is not None:
        core = core + fl.diag_embed(g0.to(core.dtype))
    return V @ core @ V.mH


@vjp("_linalg_eig")
def eig_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    A: fl.Tensor,
    A_dtype: fl.dtype,
    compute_v: bool,
    eigenvalues: fl.Tensor,
    eigenvectors: fl.Tensor,
) -> fl.Tensor:
    if not compute_v:
        eigenvalues, eigenvectors = fl.linalg.eig(A)
    V = eigenvectors
    if g1 is None:
        core = fl.diag_embed(g0)  # type: ignore[arg-type]
    else:
        turned = V.mH @ g1
        diagonal = turned.diagonal(0, -2, -1).real
        core = turned - (V.mH @ V) * diagonal.unsqueeze(-2)
        core = core / _gaps(eigenvalues).conj()
        core = core - fl.diag_embed(core.diagonal(0, -2, -1))
        if g0 is not None:
            core = core + fl.diag_embed(g0)
    gradient = fl.linalg.solve(V.mH, core @ V.mH)
    return gradient if A_dtype.is_complex else gradient.real


@vjp("_linalg_pinv")
def pinv_vjp(g: fl.Tensor, A: fl.Tensor, out: fl.Tensor) -> fl.Tensor:
    left, right = out.mH, g.mH
    over, under = right @ out @ left, left @ out @ right
    return over - A @ (out @ over) + under - (under @ out) @ A - left @ g @ left


@vjp("_linalg_lstsq")
def lstsq_vjp(g0: fl.Tensor, A: fl.Tensor, B: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return retrace(lambda a, b: fl.linalg.pinv(a) @ b, (A, B), needs, g0.narrow(-2, 0, A.shape[-1]))


def _reflect(input: fl.Tensor, tau: fl.Tensor, columns: int) -> fl.Tensor:
    """The product of the reflections whose vectors lie below the diagonal of input, applied to the identity."""
    m = input.shape[-2]
    eye = fl.eye(m, dtype=input.dtype, device=input.device)
    product = eye.narrow(-1, 0, columns).expand(*input.shape[:-2], m, columns)
    for i in reversed(range(tau.shape[-1])):
        v = input.narrow(-1, i, 1).tril(-1 - i) + eye.narrow(-1, i, 1)
        product = product - tau.narrow(-1, i, 1).unsqueeze(-1) * (v @ (v.mH @ product))
    return product


@vjp("linalg_householder_product")
def householder_product_vjp(
    g: fl.Tensor, input: fl.Tensor, tau: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    return retrace(lambda a, t: _reflect(a, t, a.shape[-1]), (input, tau), needs, g)


@vjp("ormqr")
def ormqr_vjp(
    g: fl.Tensor, self: fl.Tensor, input2: fl.Tensor, input3: fl.Tensor, left: bool, transpose: bool, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    def multiply(a: fl.Tensor, tau: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
        Q = _reflect(a, tau, a.shape[-2])
        Q = Q.mH if transpose else Q
        return Q @ other if left else other @ Q

    return retrace(multiply, (self, input2, input3), needs, g)


# ---------------------------------------------------------------- QR


@composite(out=True)
def orgqr(self: fl.Tensor, input2: fl.Tensor) -> fl.Tensor:
    return fl.linalg.householder_product(self, input2)


@composite(results="Q R", out=True)
def qr(self: fl.Tensor, some: bool = True) -> tuple[fl.Tensor, fl.Tensor]:
    return fl.linalg.qr(self, "reduced" if some else "complete")


# ---------------------------------------------------------------- singular values


def _svd(A: fl.Tensor, full_matrices: bool, driver: str | None, compute_uv: bool = True) -> Sequence[fl.Tensor]:
    if driver is not None and A.device.type != "cuda":
        raise RuntimeError(f"[linalg.svd] expected driver=None for tensors that are not on CUDA, got {driver!r}")
    U, S, Vh, info = fl._ops._linalg_svd(A, full_matrices, compute_uv)
    raise_on("linalg.svd", info, "a matrix whose singular values converge")
    return U, S, Vh


@composite(results="U S Vh", out=True)
def linalg_svd(
    A: fl.Tensor, full_matrices: bool = True, *, driver: str | None = None
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    return _svd(A, full_matrices, driver)  # type: ignore[return-value]


@composite("linalg_svdvals", out=True)
def svdvals(A: fl.Tensor, *, driver: str | None = None) -> fl.Tensor:
    return _svd(A, False, driver, compute_uv=False)[1]


@composite(results="U S V", out=True)
def svd(self: fl.Tensor, some: bool = True, compute_uv: bool = True) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    U, S, Vh = _svd(self, not some, None, compute_uv)
    if compute_uv:
        return U, S, adjoint(Vh)
    m, n = self.shape[-2:]
    return self.new_zeros((*self.shape[:-2], m, m)), S, self.new_zeros((*self.shape[:-2], n, n))


def adjoint(A: fl.Tensor) -> fl.Tensor:
    """The conjugate transpose of the last two dimensions."""
    flipped = A.transpose(-1, -2)
    return fl.conj_physical(flipped) if A.is_complex() else flipped


# ---------------------------------------------------------------- eigenvalues


@composite("linalg_eigh", results="eigenvalues eigenvectors", out=True)
def eigh(self: fl.Tensor, UPLO: str = "L") -> tuple[fl.Tensor, fl.Tensor]:
    values, vectors, info = fl._ops._linalg_eigh(self, UPLO, True)
    raise_on("linalg.eigh", info, "a matrix whose eigenvalues converge")
    return values, vectors


@composite("linalg_eigvalsh", out=True)
def eigvalsh(self: fl.Tensor, UPLO: str = "L") -> fl.Tensor:
    values, _, info = fl._ops._linalg_eigh(self, UPLO, False)
    raise_on("linalg.eigvalsh", info, "a matrix whose eigenvalues converge")
    return values


@composite("linalg_eig", results="eigenvalues eigenvectors", out=True)
def eig(self: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    values, vectors, info = fl._ops._linalg_eig(self, True)
    raise_on("linalg.eig", info, "a matrix whose eigenvalues converge")
    return values, vectors


@composite("linalg_eigvals", out=True)
def eigvals(self: fl.Tensor) -> fl.Tensor:
    values, _, info = fl._ops._linalg_eig(self, False)
    raise_on("linalg.eigvals", info, "a matrix whose eigenvalues converge")
    return values


# ---------------------------------------------------------------- least squares


@composite("linalg_lstsq", results="solution residuals rank singular_values", out=True)
def lstsq(
    self: fl.Tensor, b: fl.Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor, fl.Tensor]:
    op = "linalg.lstsq"
    if self.dim() < 2:
        raise RuntimeError(f"[{op}] expected a matrix, got {tuple(self.shape)}: input must have at least 2 dimensions.")
    if b.dim() < 1:
        raise RuntimeError(f"[{op}] expected a right-hand side with at least one dimension, got {tuple(b.shape)}")
    if self.dtype != b.dtype:
        raise RuntimeError(f"[{op}] expected tensors of one dtype, got {self.dtype} and {b.dtype}")
    if self.dtype not in (fl.float32, fl.float64, fl.complex64, fl.complex128):
        raise RuntimeError(f"[{op}] expected float32, float64 or complex tensors, got {self.dtype}")
    if self.device != b.device:
        raise RuntimeError(f"[{op}] expected tensors on one device, got {self.device} and {b.device}")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"[{op}] expected a driver among gels, gelsy, gelsd and gelss, got {driver!r}")
    if b.dim() not in (self.dim() - 1, self.dim()):
        raise RuntimeError(f"[{op}] expected a right-hand side for {tuple(self.shape)}, got {tuple(b.shape)}")
    if self.is_cuda and driver not in (None, "gels"):
        raise RuntimeError(f"[{op}] expected the driver gels on CUDA, got {driver!r}")
    driver = driver or ("gels" if self.is_cuda else "gelsy")
    vector = is_vector(self, b) or b.dim() == self.dim() - 1
    B = b.unsqueeze(-1) if vector else b
    m, n = self.shape[-2:]
    if B.size(-2) != m:
        raise RuntimeError(f"[{op}] expected a right-hand side of {m} rows, got {tuple(b.shape)}")
    if rcond is None:
        rcond = fl.finfo(self.dtype).eps * max(m, n)
    x, rank, values, info = fl._ops._linalg_lstsq(self, B, rcond, driver)
    raise_on(op, info, "a least-squares problem that LAPACK can solve")
    solution = x.narrow(-2, 0, n)
    residuals = x.new_empty((0,), dtype=values.dtype)
    full_rank = driver == "gels"
    if driver in ("gelsd", "gelss") and m > n and not without_data(op, rank):
        full_rank = all(r == n for r in all_values(rank).flatten().tolist())
    if m > n and full_rank and driver != "gelsy":
        recorded = fl.is_grad_enabled() and (self.requires_grad or b.requires_grad)
        rest = self @ solution - B if recorded else x.narrow(-2, n, m - n)
        residuals = fl.sum(fl.square(fl.abs(rest)), -2)
    return (solution.squeeze(-1) if vector else solution), residuals, rank, values


# ---------------------------------------------------------------- rank and pseudo-inverse


def _tolerance(A: fl.Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Absolute and relative tolerance with their defaults filled in."""
    has_atol = atol is not None and not (isinstance(atol, (int, float)) and atol <= 0 and not isinstance(atol, bool))
    if rtol is None:
        rtol = 0.0 if has_atol and not isinstance(atol, fl.Tensor) else fl.finfo(A.dtype).eps * max(A.shape[-2:])
        if isinstance(atol, fl.Tensor):
            default = fl.full((), rtol, dtype=atol.dtype, device=atol.device)
            rtol = fl.where(fl.gt(atol, 0), fl.zeros_like(default), default)
    return (0.0 if atol is None else atol), rtol


def _threshold(op: str, largest: fl.Tensor, atol: Any, rtol: Any) -> fl.Tensor:
    """max(atol, rtol * largest), with a last dimension to compare singular values against."""
    for name, value in (("atol", atol), ("rtol", rtol)):
        if isinstance(value, fl.Tensor) and value.is_complex():
            raise RuntimeError(f"[{op}] expected a real {name}, got {value.dtype}")
    relative = fl.mul(largest, rtol.unsqueeze(-1) if isinstance(rtol, fl.Tensor) else rtol)
    if isinstance(atol, fl.Tensor):
        return fl.maximum(relative, atol.unsqueeze(-1).to(relative.dtype))
    return fl.clamp_min(relative, atol) if atol else relative


def _spectrum(A: fl.Tensor, hermitian: bool) -> fl.Tensor:
    return fl.abs(fl.linalg.eigvalsh(A)) if hermitian else fl.linalg.svdvals(A)


def _check_matrix(op: str, A: fl.Tensor) -> None:
    if A.dim() < 2:
        raise RuntimeError(
            f"[{op}] expected a tensor of at least two dimensions, got {tuple(A.shape)}: it must have at least 2 dimensions"
        )


@composite("linalg_matrix_rank.atol_rtol_tensor(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", out=True)  # fmt: skip
@composite("linalg_matrix_rank.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", out=True)  # fmt: skip
def matrix_rank(A: fl.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> fl.Tensor:
    _check_matrix("linalg.matrix_rank", A)
    atol, rtol = _tolerance(A, atol, rtol)
    if A.numel() == 0:
        return fl.zeros(A.shape[:-2], dtype=fl.int64, device=A.device)
    values = _spectrum(A, hermitian)
    limit = _threshold("linalg.matrix_rank", fl.amax(values, -1, keepdim=True), atol, rtol)
    return fl.sum(fl.gt(values, limit), -1)


@composite("linalg_matrix_rank(Tensor self, float tol, bool hermitian=False) -> Tensor", out=True)
@composite("linalg_matrix_rank.tol_tensor(Tensor input, Tensor tol, bool hermitian=False) -> Tensor", out=True)
def matrix_rank_tol(A: fl.Tensor, tol: Any, hermitian: bool = False) -> fl.Tensor:
    rtol = fl.zeros_like(tol) if isinstance(tol, fl.Tensor) else 0.0
    return fl.linalg.matrix_rank(A, atol=tol, rtol=rtol, hermitian=hermitian)


@composite("linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", out=True)  # fmt: skip
@composite("linalg_pinv.atol_rtol_float(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", out=True)  # fmt: skip
def pinv(A: fl.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> fl.Tensor:
    _check_matrix("linalg.pinv", A)
    atol, rtol = _tolerance(A, atol, rtol)
    if A.numel() == 0:
        return adjoint(A).clone()
    if fl.is_grad_enabled() and A.requires_grad:
        # Through the singular vectors the derivative of a matrix of lower rank would divide by zero.
        with fl.no_grad():
            value = fl.linalg.pinv(A, atol=atol, rtol=rtol, hermitian=hermitian)
        return fl._ops._linalg_pinv(A, value)
    if hermitian:
        values, U = fl.linalg.eigh(A)
        size = fl.abs(values)
    else:
        U, values, Vh = fl.linalg.svd(A, full_matrices=False)
        size = values
    limit = _threshold("linalg.pinv", fl.amax(size, -1, keepdim=True), atol, rtol)
    inverse = fl.where(fl.gt(size, limit), fl.reciprocal(values), fl.zeros_like(values)).to(A.dtype)
    left = U if hermitian else adjoint(Vh)
    return fl.matmul(fl.mul(left, inverse.unsqueeze(-2)), adjoint(U))


@composite("linalg_pinv(Tensor self, float rcond, bool hermitian=False) -> Tensor", out=True)
@composite("linalg_pinv.rcond_tensor(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor", out=True)
def pinv_rcond(A: fl.Tensor, rcond: Any, hermitian: bool = False) -> fl.Tensor:
    atol = fl.zeros_like(rcond) if isinstance(rcond, fl.Tensor) else 0.0
    return fl.linalg.pinv(A, atol=atol, rtol=rcond, hermitian=hermitian)


@composite()
def pinverse(self: fl.Tensor, rcond: float = 1e-15) -> fl.Tensor:
    return fl.linalg.pinv(self, rtol=rcond, atol=0.0)


# ---------------------------------------------------------------- norms


def _to(self: fl.Tensor, dtype: Any, op: str) -> fl.Tensor:
    if dtype is None:
        return self
    if self.is_complex() and not dtype.is_complex:
        raise RuntimeError(f"[{op}] expected a complex dtype for a complex tensor, got {dtype}")
    if fl.promote_types(self.dtype, dtype) != dtype:
        raise RuntimeError(f"[{op}] expected a dtype to which {self.dtype} converts without loss, got {dtype}")
    return self.to(dtype)


def _check_norm_dtype(op: str, self: fl.Tensor) -> None:
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(
            f"[{op}] expected a floating or complex tensor, got {self.dtype}: Expected a floating point or complex tensor as input"
        )


@composite("linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)  # fmt: skip
def linalg_vector_norm(
    self: fl.Tensor, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> fl.Tensor:
    from flambeau.ops.reductions.records import vector_norm

    op = "linalg.vector_norm"
    _check_norm_dtype(op, self)
    if isinstance(ord, complex):
        raise RuntimeError(
            f"[{op}] expected a real order, got {ord}: Expected a non-complex scalar as the order of norm."
        )
    # The smallest and the largest element of nothing do not exist.
    if self.numel() == 0 and (ord < 0 or ord == math.inf):
        reduced = range(self.dim()) if not dim else [_wrap(op, d, max(self.dim(), 1)) for d in dim]
        if any(self.size(d) == 0 for d in reduced):
            raise RuntimeError(
                f"[{op}] expected elements to reduce for order {ord}, got shape {tuple(self.shape)}: linalg.vector_norm "
                f"cannot compute the {ord} norm on an empty dimension, as it has no identity"
            )
    if dtype is not None:
        self = _to(self, dtype, op)
    return vector_norm(self, ord, None if dim is None else list(dim), keepdim)


@composite("linalg_matrix_norm(Tensor self, Scalar ord, int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)  # fmt: skip
@composite("linalg_matrix_norm.str_ord(Tensor self, str ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)  # fmt: skip
def matrix_norm(
    self: fl.Tensor, ord: Any = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> fl.Tensor:
    op = "linalg.matrix_norm"
    _check_matrix(op, self)
    _check_norm_dtype(op, self)
    if len(dim) != 2:
        raise RuntimeError(f"[{op}] expected two dimensions, got {tuple(dim)}")
    first, second = (_wrap(op, d, self.dim()) for d in dim)
    if first == second:
        raise RuntimeError(f"[{op}] expected two different dimensions, got {tuple(dim)}: dims must be different")
    if ord == "fro":
        return fl.linalg.vector_norm(self, 2, [first, second], keepdim, dtype=dtype)
    A = _to(self, dtype, op)
    if isinstance(ord, str) and ord != "nuc":
        raise RuntimeError(f"[{op}] expected an order of 'fro' or 'nuc', got {ord!r}")
    if ord in ("nuc", 2, -2):
        order = [d for d in range(A.dim()) if d not in (first, second)] + [first, second]
        values = fl.linalg.svdvals(A.permute(order))
        if ord == "nuc":
            result = fl.sum(values, -1)
        else:
            result = _largest(values, -1) if ord > 0 else fl.amin(values, -1)
        if keepdim:
            for d in sorted((first, second)):
                result = result.unsqueeze(d)
        return result
    if abs(ord) not in (1, math.inf):
        raise RuntimeError(f"[{op}] expected an order among 'fro', 'nuc', 1, -1, 2, -2, inf and -inf, got {ord}")
    summed, other = (first, second) if abs(ord) == 1 else (second, first)
    sums = fl.sum(fl.abs(A), summed, keepdim=True)
    result = _largest(sums, other, keepdim=True) if ord > 0 else fl.amin(sums, other, keepdim=True)
    return result if keepdim else result.squeeze((first, second))


def _largest(sizes: fl.Tensor, dim: int, keepdim: bool = False) -> fl.Tensor:
    """The maximum of numbers that are not negative: 0 for none."""
    return fl.amax(sizes, dim, keepdim) if sizes.size(dim) else fl.sum(sizes, dim, keepdim)


def _wrap(op: str, d: int, ndim: int) -> int:
    if not -ndim <= d < ndim:
        raise IndexError(
            f"[{op}] expected a dimension in the range [{-ndim}, {ndim - 1}], got {d}: Dimension out of range"
        )
    return d % ndim


@composite("linalg_norm(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)  # fmt: skip
@composite("linalg_norm.ord_str(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)  # fmt: skip
def norm(
    self: fl.Tensor, ord: Any = None, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> fl.Tensor:
    op = "linalg.norm"
    if dim is not None and len(dim) not in (1, 2):
        raise RuntimeError(f"[{op}] expected one or two dimensions, got {tuple(dim)}")
    if ord is not None and dim is None and self.dim() not in (1, 2):
        raise RuntimeError(f"[{op}] expected a vector or a matrix for an order without dim, got {tuple(self.shape)}")
    if isinstance(ord, str):
        if dim is None and self.dim() != 2:
            raise RuntimeError(f"[{op}] expected a matrix for ord={ord!r}, got {tuple(self.shape)}")
        return fl.linalg.matrix_norm(self, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    if ord is not None and ((dim is not None and len(dim) == 2) or (dim is None and self.dim() == 2)):
        return fl.linalg.matrix_norm(self, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    return fl.linalg.vector_norm(self, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@composite("frobenius_norm(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", method=False, out=True)
def frobenius_norm(self: fl.Tensor, dim: Sequence[int], keepdim: bool = False) -> fl.Tensor:
    return fl.linalg.vector_norm(self, 2, dim, keepdim)


@composite(method=False, out=True)
def nuclear_norm(self: fl.Tensor, keepdim: bool = False) -> fl.Tensor:
    return fl.linalg.matrix_norm(self, "nuc", (0, 1), keepdim)


@composite("nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor", method=False, out=True)
def nuclear_norm_dim(self: fl.Tensor, dim: Sequence[int], keepdim: bool = False) -> fl.Tensor:
    return fl.linalg.matrix_norm(self, "nuc", dim, keepdim)


@composite("linalg_cond(Tensor self, Scalar? p=None) -> Tensor", out=True)
@composite("linalg_cond.p_str(Tensor self, str p) -> Tensor", out=True)
def cond(self: fl.Tensor, p: Any = None) -> fl.Tensor:
    op = "linalg.cond"
    _check_matrix(op, self)
    if self.dtype not in (fl.float32, fl.float64, fl.complex64, fl.complex128):
        raise RuntimeError(f"[{op}] expected float32, float64 or complex, got {self.dtype}")
    if p not in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"[{op}] expected an order among None, 'fro', 'nuc', 1, -1, 2, -2, inf and -inf, got {p!r}")
    if p in (None, 2, -2):
        values = fl.linalg.svdvals(self)
        if self.numel() == 0:
            return values.new_zeros(self.shape[:-2])
        first, last = values.select(-1, 0), values.select(-1, -1)
        return fl.div(last, first) if p == -2 else fl.div(first, last)
    if self.size(-1) != self.size(-2):
        raise RuntimeError(
            f"[{op}] expected square matrices for p={p}, got {tuple(self.shape)}: A must be batches of square matrices"
        )
    if self.numel() == 0:
        return fl.zeros(self.shape[:-2], dtype=fl.abs(self).dtype, device=self.device)
    if p == "nuc":
        values = fl.linalg.svdvals(self)
        return fl.mul(fl.sum(values, -1), fl.sum(fl.reciprocal(values), -1))
    inverse, info = fl.linalg.inv_ex(self)
    result = fl.mul(fl.linalg.matrix_norm(self, p), fl.linalg.matrix_norm(inverse, p))
    return fl.where(fl.eq(info, 0), result, fl.full_like(result, math.inf))


# ---------------------------------------------------------------- small ones


@composite("linalg_diagonal")
def diagonal(A: fl.Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> fl.Tensor:
    return A.diagonal(offset, dim1, dim2)


@composite()
def linalg_vander(x: fl.Tensor, *, N: int | None = None) -> fl.Tensor:
    if x.dim() == 0 and N is None:
        raise RuntimeError("[linalg.vander] expected N or a tensor with dimensions, got a 0-d tensor")
    x = x.unsqueeze(0) if x.dim() == 0 else x
    count = x.size(-1) if N is None else N
    if count <= 1:
        raise RuntimeError(f"[linalg.vander] expected N greater than 1, got {count}")
    if x.dtype == fl.bool:
        x = x.to(fl.int64)
    repeated = x.unsqueeze(-1).expand([*x.shape, count - 1])
    powers = fl.cumprod(repeated, -1)
    return fl.cat([fl.ones([*x.shape, 1], dtype=powers.dtype, device=x.device), powers], -1)


@composite()
def vander(x: fl.Tensor, N: int | None = None, increasing: bool = False) -> fl.Tensor:
    if x.dim() != 1:
        raise RuntimeError(f"[vander] expected a vector, got {tuple(x.shape)}")
    count = x.size(0) if N is None else N
    if count < 0:
        raise RuntimeError(f"[vander] expected N that is not negative, got {count}: N must be non-negative.")
    dtype = x.dtype if x.is_floating_point() or x.is_complex() else fl.int64
    ones = fl.ones((x.size(0), min(count, 1)), dtype=dtype, device=x.device)
    if count <= 1:
        return ones
    powers = fl.cat([ones, fl.cumprod(x.to(dtype).unsqueeze(-1).expand(x.size(0), count - 1), -1)], -1)
    return powers if increasing else fl.flip(powers, [-1])


# ---------------------------------------------------------------- what passes know of these operators

autocast("float32", "frobenius_norm linalg_matrix_norm linalg_vector_norm nuclear_norm", on="accelerator")
autocast(
    "float32",
    "geqrf linalg_cond linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product "
    "linalg_lstsq linalg_matrix_rank linalg_qr linalg_svd linalg_svdvals orgqr ormqr pinverse qr svd",
    on="cpu",
)
