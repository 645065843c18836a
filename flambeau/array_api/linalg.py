"""The linear algebra of the array API standard."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.array_api import _together, matmul, matrix_transpose, sum, tensordot, vecdot

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace",
    "vecdot", "vector_norm",
]  # fmt: skip

cholesky, det, eigh, eigvalsh, inv = (getattr(fl.linalg, n) for n in ("cholesky", "det", "eigh", "eigvalsh", "inv"))
matrix_power, slogdet, svdvals = fl.linalg.matrix_power, fl.linalg.slogdet, fl.linalg.svdvals


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    return fl.linalg.cross(*fl.broadcast_tensors(*_together(x1, x2)), dim=axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    return fl.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    return fl.linalg.matrix_norm(x, ord, keepdim=keepdims)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    return fl.linalg.matrix_rank(x, rtol=rtol)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    return fl.outer(*_together(x1, x2))


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    return fl.linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    return fl.linalg.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The standard takes x2 for vectors only where it has one dimension."""
    if x2.ndim == 1:
        return fl.linalg.solve(x1, x2.unsqueeze(-1)).squeeze(-1)
    return fl.linalg.solve(x1, x2)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    return fl.linalg.svd(x, full_matrices)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    return fl.linalg.vector_norm(x, ord, axis, keepdims)
